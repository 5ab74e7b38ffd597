"""Whether the next step drafts a tree: none or the device's one size, whichever promises more tokens a second.

The size follows from what passes cost; an answer moves between the two by how many of its guesses were accepted. Plain
numbers only. Such a decision model is what multi-candidate speculative decoding asks for (arXiv 2409.10644).
"""

from collections.abc import Sequence
from typing import NamedTuple

from jakiro.config import TreeConfig
from jakiro.decode.device_profile import DeviceProfile
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.trace import Plan

# The n-th best guess of a tree is right in about RANK_RATE / n² of the steps, one a level deeper DEPTH_RATE times as
# often as the one before it, and a step writes SPEEDUP times what it would without a draft (the default pair's prompts)
RANK_RATE, DEPTH_RATE, SPEEDUP = 2.5, 0.4, 1.5
# Tokens that a tree is expected to have accepted before an answer has shown its own
START = 1.0
# Weight of a step among those before it: of a drafted one, of a plain one that lets old experience fade, of a time
LEARN, FADE, FOLLOW = 1 / 8, 1 / 256, 0.1


class Size(NamedTuple):
    """Levels of a tree, 0 for the root alone, and its nodes, root included."""

    levels: int
    nodes: int


NONE = Size(0, 1)


def sizes_for(profile: DeviceProfile, bounds: TreeConfig) -> tuple[Size, Size]:
    """None, and the tree within the bounds that pays on this device."""
    least = SPEEDUP / profile.verify(1)
    nodes = 2
    while nodes < bounds.nodes and RANK_RATE / nodes**2 >= least * (profile.verify(nodes + 1) - profile.verify(nodes)):
        nodes += 1

    def rate(levels: int) -> float:
        tokens = sum(DEPTH_RATE**level for level in range(levels + 1))
        return tokens / (profile.verify(nodes) + profile.draft(levels))

    return NONE, Size(max(range(1, min(bounds.depth, nodes - 1) + 1), key=rate), nodes)


class TreeBudget:
    """Chooses the size of each step's tree in one answer.

    Args:
        profile: this device's costs.
        sizes: none, and the tree where the method drafts one.

    Attributes:
        least_chance: of a candidate that needs no draft; a less likely one costs more than it brings.
    """

    def __init__(self, profile: DeviceProfile, sizes: Sequence[Size]) -> None:
        self.profile, self.sizes = profile, tuple(sizes)
        row_ms = (profile.verify(1 + MAX_CHAIN) - profile.verify(1)) / MAX_CHAIN
        self.least_chance = SPEEDUP * row_ms / profile.verify(1)
        # Of a drafted tree, a running mean
        self._accepted = START
        # Measured over profiled time in this answer, and the time of a step that is neither draft nor pass
        self._verify_pace = self._draft_pace = 1.0
        self._other_ms: float | None = None
        self._context = 0

    def choose(self, context: int = 0) -> Plan:
        """The tree of the next step.

        Args:
            context: tokens before the root, which every row of a pass attends to.
        """
        self._context, rates = context, []
        for size in self.sizes:
            tokens, ms = 1 + (self._accepted if size.levels else 0.0), self._ms(size)
            rates.append((tokens / ms, size, tokens, ms))
        _, size, tokens, ms = max(rates)
        curve = tuple((each.nodes, 1000 * rate) for rate, each, *_ in rates)
        return Plan(size.levels, size.nodes, _why(size, tokens, ms), tokens, ms, curve)

    def observe(self, plan: Plan, accepted: int | None, draft_ms: float, verify_ms: float, other_ms: float) -> None:
        """Learns from a finished step.

        Args:
            plan: what `choose` returned.
            accepted: draft tokens; None where the tree was another than planned.
            draft_ms, verify_ms, other_ms: the step's time for the draft, for the target's pass, and for neither.
        """
        self._other_ms = other_ms if self._other_ms is None else _followed(self._other_ms, other_ms)
        if accepted is not None:
            self._verify_pace = _paced(self._verify_pace, verify_ms, self.profile.verify(plan.nodes, self._context))
        if not plan.levels:
            # Who else computes here may be gone, and the text easier, so that in time a tree is tried again
            self._draft_pace += FADE * (self._verify_pace - self._draft_pace)
            self._accepted += FADE * (START - self._accepted)
        elif accepted is not None:
            self._draft_pace = _paced(self._draft_pace, draft_ms, self.profile.draft(plan.levels))
            self._accepted += LEARN * (accepted - self._accepted)

    def _ms(self, size: Size) -> float:
        """Of a step with such a tree, as passes go in this answer."""
        passes = self._verify_pace * self.profile.verify(size.nodes, self._context)
        return passes + self._draft_pace * self.profile.draft(size.levels) + (self._other_ms or 0.0)


def _why(size: Size, tokens: float, ms: float) -> str:
    if size == NONE:
        return "No draft this step: checking one token was faster here."
    guesses = "1 guess" if size.nodes == 2 else f"{size.nodes - 1} guesses"
    return f"{guesses}: about {tokens:.1f} tokens in {ms:.0f} ms, the best rate on this machine."


def _followed(usual: float, value: float) -> float:
    """A running mean, in which one outlier counts as no more than twice what was usual."""
    return usual + FOLLOW * (min(value, 2 * usual) - usual)


def _paced(pace: float, ms: float, profiled_ms: float) -> float:
    """Measured over profiled time, followed."""
    return _followed(pace, ms / profiled_ms) if profiled_ms > 0 else pace
