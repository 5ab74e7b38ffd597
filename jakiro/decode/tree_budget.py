"""Choice of each step's tree size: no draft, or the most cost-effective tree of the device.

The tree's size is computed from the measured times of passes. Before each step, an answer chooses one of the two sizes
by the number of tokens that it accepted so far. This module uses plain numbers only.
Multi-candidate speculative decoding (arXiv 2409.10644) proposes such a cost model.
"""

from collections.abc import Sequence

from jakiro.config import NO_DRAFT, TreeConfig, TreeSize
from jakiro.decode.device_profile import DeviceProfile
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.trace import Plan

# Fitted to prompts of the default target and head. The n-th best candidate of a tree is accepted in about
# RANK_RATE / n² of the steps. A level has an accepted candidate DEPTH_RATE times as often as the level above. SPEEDUP
# is the expected speed in tokens per plain pass; another row is worth its time if it adds tokens at least at this rate
RANK_RATE, DEPTH_RATE, SPEEDUP = 2.5, 0.4, 1.5
# Expected number of accepted tokens before an answer has measured its own
INITIAL_ACCEPTED = 1.0
# Weights in moving averages: LEARN of a drafted step's tokens, FADE of the initial values in a plain step, FOLLOW of a
# measured time
LEARN, FADE, FOLLOW = 1 / 8, 1 / 256, 0.1


def candidate_sizes(
    profile: DeviceProfile, bounds: TreeConfig, fixed_size: TreeSize | None = None
) -> tuple[TreeSize, TreeSize]:
    """Return the two candidate sizes: no draft, and the most cost-effective tree within `bounds`.

    Args:
        fixed_size: the backend's one tree size, if all sizes cost the same.
    """
    if fixed_size is not None:
        return NO_DRAFT, TreeSize(min(fixed_size.levels, bounds.depth), min(fixed_size.nodes, bounds.nodes))
    least_gain = SPEEDUP / profile.pass_ms(1)
    nodes = 2
    while nodes < bounds.nodes:
        row_ms = profile.pass_ms(nodes + 1) - profile.pass_ms(nodes)
        if RANK_RATE / nodes**2 < least_gain * row_ms:
            break
        nodes += 1

    def tokens_per_ms(levels: int) -> float:
        tokens = sum(DEPTH_RATE**level for level in range(levels + 1))
        return tokens / (profile.pass_ms(nodes) + profile.draft(levels))

    return NO_DRAFT, TreeSize(max(range(1, min(bounds.depth, nodes - 1) + 1), key=tokens_per_ms), nodes)


class TreeBudget:
    """Chooses the tree size of each step of one answer.

    Args:
        profile: costs of passes on this device.
        sizes: candidate sizes: `NO_DRAFT`, and a tree if the method drafts one.

    Attributes:
        least_chance: smallest acceptance probability for which verifying a candidate without a draft pass gains time.
    """

    def __init__(self, profile: DeviceProfile, sizes: Sequence[TreeSize]) -> None:
        self.profile, self.sizes = profile, tuple(sizes)
        row_ms = (profile.pass_ms(1 + MAX_CHAIN) - profile.pass_ms(1)) / MAX_CHAIN
        self.least_chance = SPEEDUP * row_ms / profile.pass_ms(1)
        # Moving average of the accepted tokens of a drafted tree
        self._accepted = INITIAL_ACCEPTED
        # Measured time divided by profiled time
        self._pass_pace = self._draft_pace = 1.0
        # Milliseconds of a step besides its draft and its pass
        self._other_ms: float | None = None
        self._context = 0

    def next_tree(self, context: int = 0) -> Plan:
        """Choose the size of the next tree.

        Args:
            context: tokens before the root, to which every row of a pass attends.
        """
        self._context, rates = context, []
        for size in self.sizes:
            tokens, ms = 1 + (self._accepted if size.levels else 0.0), self._predict_ms(size)
            rates.append((tokens / ms, size, tokens, ms))
        _, size, tokens, ms = max(rates)
        curve = tuple((candidate.nodes, 1000 * rate) for rate, candidate, *_ in rates)
        return Plan(size.levels, size.nodes, _reason(size, tokens, ms), tokens, ms, curve)

    def update(self, plan: Plan, accepted: int | None, draft_ms: float, verify_ms: float, other_ms: float) -> None:
        """Update the moving averages with the result of a step.

        Args:
            plan: from `next_tree`.
            accepted: number of accepted draft tokens; None if the tree was not the planned one.
            draft_ms, verify_ms, other_ms: the step's time for the draft, for the target's pass, and for the rest.
        """
        self._other_ms = other_ms if self._other_ms is None else _follow(self._other_ms, other_ms)
        if accepted is not None:
            self._pass_pace = _follow_pace(self._pass_pace, verify_ms, self.profile.pass_ms(plan.nodes, self._context))
        if not plan.levels:
            # Move both averages slowly back, so that a tree is tried again later: other load on the machine may have
            # ended, and the text may have become easier to predict
            self._draft_pace += FADE * (self._pass_pace - self._draft_pace)
            self._accepted += FADE * (INITIAL_ACCEPTED - self._accepted)
        elif accepted is not None:
            self._draft_pace = _follow_pace(self._draft_pace, draft_ms, self.profile.draft(plan.levels))
            self._accepted += LEARN * (accepted - self._accepted)

    def _predict_ms(self, size: TreeSize) -> float:
        """Return the predicted milliseconds of a step with a tree of this size, at this answer's measured speed."""
        verify_ms = self._pass_pace * self.profile.pass_ms(size.nodes, self._context)
        return verify_ms + self._draft_pace * self.profile.draft(size.levels) + (self._other_ms or 0.0)


def _reason(size: TreeSize, tokens: float, ms: float) -> str:
    if size == NO_DRAFT:
        return "No draft this step: checking one token was faster here."
    guesses = "1 guess" if size.nodes == 2 else f"{size.nodes - 1} guesses"
    return f"{guesses}: about {tokens:.1f} tokens in {ms:.0f} ms, the best rate on this machine."


def _follow(average: float, value: float) -> float:
    """Return the updated moving average; an outlier counts as at most twice the average."""
    return average + FOLLOW * (min(value, 2 * average) - average)


def _follow_pace(pace: float, ms: float, profiled_ms: float) -> float:
    """Return the updated moving average of measured time divided by profiled time."""
    return _follow(pace, ms / profiled_ms) if profiled_ms > 0 else pace
