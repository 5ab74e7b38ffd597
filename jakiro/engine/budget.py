"""How large the next tree should be: expected tokens per second from calibrated estimates and measured costs.

The host chooses each step's tree from what it read of the steps before. Where no tree pays, drafting stops and is
probed now and then, so that the loop is never much slower than plain decoding. Plain numbers only; this is the decision
model that multi-candidate speculative decoding asks for (arXiv 2409.10644).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from jakiro.config import TreeConfig
from jakiro.core.verify import Outcome
from jakiro.engine.costs import DeviceProfile
from jakiro.engine.trend import Trend
from jakiro.trace import Plan

MEMORY = 0.92
LOSING_STEPS = 12
PROBE_TIME_SHARE = 0.02
WINNING_PROBES = 2
START_EXPECTATION = 1.6
# Larger trees than the step's own are looked at every so many drafted steps: that costs further rows of a draft
LOOK_EVERY = 3
# Tokens by which a text may have grown for passes to cost the same
SAME_COSTS = 32
# Slope and weight of the trend of drafted tokens over those expected of free candidates
FREE_TREND = (0.8, 2.0)


class TreeBudget:
    """Chooses levels and nodes of each step of one answer.

    Args:
        profile: this device's costs.
        bounds: the widest tree allowed; its depth and nodes are upper bounds.
        drafts: whether the method drafts trees; if not, only chains that cost no draft pass are considered.

    For each number of levels and each tree size, the expected number of accepted draft tokens is kept as a running mean
    over steps, in which the first ones weigh alike. It is scaled by accepted ÷ planned tokens, a running ratio too.
    """

    def __init__(self, profile: DeviceProfile, bounds: TreeConfig, drafts: bool = True) -> None:
        self.profile, self.bounds, self.drafts = profile, bounds, drafts
        self.buckets = (*(nodes for nodes in profile.buckets if nodes < bounds.nodes), bounds.nodes)
        # Looked up a hundred times a step, so computed once: the profiled cost, and what 1,000 further tokens add to it
        self._verify_costs = {nodes: _line(profile.verify, nodes, profile) for nodes in (1, *self.buckets)}
        self._draft_costs = {levels: _line(profile.draft, levels, profile) for levels in range(1, bounds.depth + 1)}
        # By levels from 1 on, by bucket: expected accepted tokens, and in how many steps they were told
        self._expected: list[list[float]] = []
        self._seen: list[list[int]] = []
        # What the last step was judged by, for the next one's choice
        self._best: Plan | None = None
        self._predicted, self._accepted = START_EXPECTATION, START_EXPECTATION
        self._other_ms = 0.0
        # Measured over profiled time in this answer, of passes and, by levels, of drafts: nodes that cannot win are not
        # expanded, which saves more the deeper a tree is
        self._verify_pace = 1.0
        self._draft_paces: dict[int, float] = {}
        self._drafted = 0
        self._losing = 0
        self._winning_probes = 0
        self._drafting = True
        self._ms_since_probe = 0.0
        self._context = 0
        # Tokens expected of all free candidates in the step at hand, and how what drafts bring rises with that
        self._free_tokens = 1.0
        self._with_free = Trend(*FREE_TREND)
        # Accepted and expected tokens of steps with free candidates alone: with a temperature they promise too much
        self._free_accepted = self._free_predicted = START_EXPECTATION

    def choose(self, free_scores: Sequence[float] = (), context: int = 0) -> Plan:
        """The tree of the next step.

        Args:
            free_scores: log chances of candidates that need no draft pass, the best first; each one's parent comes
                before it.
            context: tokens before the root, which every row of a pass attends to.

        Returns:
            A plan with `expected_tokens` and `expected_ms`; its curve has the chosen number of levels, and starts with
            the root alone.
        """
        if context > self._context + SAME_COSTS:
            self._best = None
        self._context = context
        plan = self._choose_tree()
        self._free_tokens = 1 + sum(map(math.exp, free_scores))
        free = self._free_alone(free_scores)
        if free is None:
            return plan
        drafted = plan.expected_tokens
        if plan.levels:
            # Where free candidates are likely, the text is easy: a draft brings more than on average, if it brings any
            drafted += self._with_free.rise(self._free_tokens) * min(drafted - 1, 1.0)
        return free if _rate(free) > drafted / plan.expected_ms else plan

    def _free_alone(self, scores: Sequence[float]) -> Plan | None:
        """The best tree of candidates that need no draft pass, within the bound on nodes; None where none is faster
        than plain decoding.
        """
        nodes, tokens, ms = 1, 1.0, self._verify_ms(1)
        within = scores[: self.bounds.nodes - 1]
        for count, expected in enumerate(accumulate(map(math.exp, within), initial=0.0), start=1):
            total, cost = 1.0 + self._free_calibration * expected, self._verify_ms(count)
            if total / cost > tokens / ms:
                nodes, tokens, ms = count, total, cost
        if nodes == 1:
            return None
        candidates = "1 candidate" if nodes == 2 else f"{nodes - 1} candidates"
        why = f"{candidates} without a draft: {tokens:.1f} tokens expected for {ms:.0f} ms."
        return Plan(0, nodes, why, tokens, ms)

    def _choose_tree(self) -> Plan:
        plain_ms = self._verify_ms(1)
        plain = Plan(0, 1, "No draft this step: checking one token was faster here.", 1.0, plain_ms)
        if not self.drafts:
            return plain
        best = self._best or self._best_tree()
        if best is None:
            levels = min(2, self.bounds.depth)
            nodes = next((nodes for nodes in self.buckets if nodes >= 6), self.bounds.nodes)
            return Plan(levels, nodes, "First step: a small tree, to see how well the draft does.", 1.0, plain_ms)
        if self._drafting:
            return best
        if self._ms_since_probe * PROBE_TIME_SHARE < max(best.expected_ms - plain_ms, 0.0):
            return replace(plain, curve=best.curve)
        return replace(best, why="Probe: a draft now and then shows whether drafting pays again.")

    def observe(
        self,
        plan: Plan,
        expected: Sequence[Sequence[float]],
        accepted: int,
        draft_ms: float,
        verify_ms: float,
        other_ms: float,
    ) -> None:
        """Learns from a finished step.

        Args:
            plan: what `choose` returned.
            expected: per number of levels 1, 2, …, per bucket: expected accepted tokens of that tree; empty for a
                root-only step.
            accepted: accepted draft tokens.
            draft_ms, verify_ms, other_ms: the step's time for the draft, for the target's pass, and for neither.
        """
        self._best = None
        self._other_ms = _running_mean(self._other_ms, other_ms) if self._other_ms else other_ms
        self._verify_pace = _followed(self._verify_pace, verify_ms, self.profile.verify(plan.nodes, self._context))
        if plan.levels == 0 and plan.nodes > 1:
            self._free_predicted = 0.95 * self._free_predicted + (plan.expected_tokens - 1) / self._free_calibration
            self._free_accepted = 0.95 * self._free_accepted + accepted
        if plan.levels == 0 or not expected:
            self._ms_since_probe += plan.expected_ms
            return
        self._drafted += 1
        self._with_free.observe(self._free_tokens, 1.0 + accepted)
        profiled = self.profile.draft(plan.levels, self._context)
        pace = _followed(self._draft_pace(plan.levels), draft_ms, profiled)
        # The others move slowly towards it, so that one delay does not count against them for long
        self._draft_paces = {levels: old + 0.02 * (pace - old) for levels, old in self._draft_paces.items()}
        self._draft_paces[plan.levels] = pace
        self._remember(expected)
        # What was planned, not what the tree then promised: of several uncertain means the highest was chosen, which is
        # too high on average. The first tree was planned without a mean.
        planned = (plan.expected_tokens - 1) / self.calibration
        promised = expected[plan.levels - 1]
        promised = promised[min(self._bucket_index(plan.nodes), len(promised) - 1)]
        self._predicted = 0.95 * self._predicted + (planned or promised)
        self._accepted = 0.95 * self._accepted + accepted
        self._judge()

    def _remember(self, expected: Sequence[Sequence[float]]) -> None:
        """Adds a step's expectations to the running means."""
        for _ in expected[len(self._expected) :]:
            self._expected.append([])
            self._seen.append([])
        for told, means, seen in zip(expected, self._expected, self._seen, strict=False):
            for place, value in enumerate(told[: len(means)]):
                seen[place] += 1
                # A plain mean at first: how an answer begins is easier to guess than what follows
                means[place] += max(1 - MEMORY, 1 / seen[place]) * (value - means[place])
            means += told[len(means) :]
            seen += [1] * (len(means) - len(seen))

    def _judge(self) -> None:
        """After a drafted step: does the best tree still beat plain decoding?"""
        best = self._best = self._best_tree()
        plain_ms = self._verify_ms(1)
        pays = best is not None and best.expected_tokens * plain_ms > best.expected_ms
        if self._drafting:
            self._losing = 0 if pays else self._losing + 1
            if self._losing >= LOSING_STEPS:
                self._drafting, self._winning_probes = False, 0
                self._ms_since_probe = 0.0
        else:
            self._ms_since_probe = 0.0
            self._winning_probes = self._winning_probes + 1 if pays else 0
            if self._winning_probes >= WINNING_PROBES:
                self._drafting, self._losing = True, 0

    @property
    def looks_further(self) -> bool:
        """Whether the next draft should tell of larger trees than its own, too."""
        return self._drafted % LOOK_EVERY == 0

    @property
    def calibration(self) -> float:
        """Accepted over planned tokens of drafts, a running ratio clipped to [1/4, 2]."""
        return _ratio(self._accepted, self._predicted)

    @property
    def _free_calibration(self) -> float:
        """The same of free candidates that were checked without a draft."""
        return _ratio(self._free_accepted, self._free_predicted)

    def _verify_ms(self, nodes: int) -> float:
        """A step's time without its draft, at the length the text has now."""
        known = self._verify_costs.get(nodes)
        ms = self.profile.verify(nodes, self._context) if known is None else known[0] + known[1] * self._further
        return self._verify_pace * ms + self._other_ms

    def _draft_ms(self, levels: int) -> float:
        base, slope = self._draft_costs[levels]
        return self._draft_pace(levels) * (base + slope * self._further)

    def _draft_pace(self, levels: int) -> float:
        """That of these levels, else of the nearest number of levels that were drafted."""
        nearest = min(self._draft_paces, key=lambda known: abs(known - levels), default=None)
        return 1.0 if nearest is None else self._draft_paces[nearest]

    @property
    def _further(self) -> float:
        """Thousands of tokens by which the text is longer than the one that was profiled."""
        return max(self._context - self.profile.context, 0) / 1000

    def _bucket_index(self, nodes: int) -> int:
        return min(bisect_left(self.buckets, nodes), len(self.buckets) - 1)

    def _expected_accepted(self, levels: int) -> list[float]:
        """Expected accepted tokens by bucket, as far as they are known; one level or size beyond is extrapolated."""
        told = self._told(levels)
        above, further = self._told(levels - 1), self._told(levels - 2)
        row = list(told)
        if len(told) >= 2:
            row.append(told[-1] + 0.9 * (told[-1] - told[-2]))
        for place in range(len(row), len(above)):
            before, first = further[place] if place < len(further) else 0.0, self._told(1)[place]
            ratio = (above[place] - before) / before if before > 0 else first / (1 + first)
            row.append(above[place] + (above[place] - before) * min(max(ratio, 0.0), 0.9))
        return row

    def _told(self, levels: int) -> list[float]:
        """By bucket: the means of trees of so many levels, as far as steps told them."""
        return self._expected[levels - 1] if 0 < levels <= len(self._expected) else []

    def _best_tree(self) -> Plan | None:
        """The levels and nodes with most expected tokens per second."""
        calibration, verify = self.calibration, [self._verify_ms(nodes) for nodes in self.buckets]
        rates: dict[tuple[int, int], tuple[float, float, float]] = {}
        for levels in range(1, min(self.bounds.depth, len(self._expected) + 1) + 1):
            draft_ms = self._draft_ms(levels)
            for nodes, verify_ms, accepted in zip(self.buckets, verify, self._expected_accepted(levels), strict=False):
                if nodes > levels:
                    tokens, ms = 1 + calibration * accepted, draft_ms + verify_ms
                    rates[levels, nodes] = tokens / ms, tokens, ms
        if not rates:
            return None
        levels, nodes = max(rates, key=lambda size: rates[size][0])
        _, tokens, ms = rates[levels, nodes]
        why = (
            f"{nodes - 1} candidate{'s' if nodes > 2 else ''} over {levels} level{'s' if levels > 1 else ''}: "
            f"{tokens:.1f} tokens expected for {ms:.0f} ms."
        )
        curve = [(size, 1000 * rate) for (deepest, size), (rate, *_) in rates.items() if deepest == levels]
        return Plan(levels, nodes, why, tokens, ms, ((1, 1000 / self._verify_ms(1)), *curve))


def _rate(plan: Plan) -> float:
    """Expected tokens per millisecond."""
    return plan.expected_tokens / plan.expected_ms


def _line(cost: Callable[[int, int], float], count: int, profile: DeviceProfile) -> tuple[float, float]:
    """A cost at the profiled length, and what 1,000 further tokens of text add to it."""
    base = cost(count, profile.context)
    return base, cost(count, profile.context + 1000) - base


def _followed(pace: float, ms: float, profiled_ms: float) -> float:
    """A running mean of measured ÷ profiled time; one outlier counts as no more than twice or half the profile."""
    return _running_mean(pace, min(max(ms / profiled_ms, 0.5), 2.0)) if profiled_ms > 0 else pace


def _ratio(accepted: float, expected: float) -> float:
    return min(max(accepted / expected, 0.25), 2.0) if expected > 0 else 1.0


def _running_mean(before: float, value: float) -> float:
    return 0.9 * before + 0.1 * value


def accepted_within(outcome: Outcome, levels: int, sizes: Sequence[int]) -> list[list[float]]:
    """What smaller trees would have accepted in this step, for drafters without a forecast.

    The tree of a size holds the nodes with the best scores, so an accepted node is in it or not.

    Returns:
        Per number of levels 1, 2, … up to `levels`, per size up to the tree's own: accepted tokens.
    """
    by_score = sorted(range(1, len(outcome.scores)), key=lambda node: -outcome.scores[node])
    rank = {node: place for place, node in enumerate(by_score, start=1)}
    known = [size for size in sizes if size <= len(outcome.scores)] or list(sizes[:1])
    rows = []
    for most in range(1, levels + 1):
        within = [node for node in outcome.accepted_path if outcome.depths[node] <= most]
        rows.append([float(sum(rank[node] < size for node in within)) for size in known])
    return rows
