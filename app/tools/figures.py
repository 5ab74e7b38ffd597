"""Measurements of a pair of traces: the numbers by which recordings are chosen and captioned."""

from collections import Counter
from dataclasses import dataclass
from statistics import mean

from jakiro.trace import Trace, acceptance_by_depth


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers of one drafting method against plain decoding of the same text.

    Attributes:
        is_complete: whether the answer is complete.
        candidates: mean candidates per step.
        tokens: tokens of the answer.
        speedup: seconds of plain decoding ÷ its own, both on their own clocks.
        longest: most candidates accepted in one step.
        refused: checked levels without an accepted candidate, percent.
        first_expert, second_expert: share of the accepted candidates by the header's first two proposers, percent.
        both_by: number of the step by which both had a candidate accepted, None if never.
        contrastive: accepted candidates of the contrastive branch.
    """

    is_complete: bool
    candidates: float
    tokens: int
    speedup: float
    longest: int
    refused: int
    first_expert: int
    second_expert: int
    both_by: int | None
    contrastive: int


def figures_of(plain: Trace, drafted: Trace) -> Figures:
    """Return the figures of two traces of one text."""
    delivered = [
        [step.nodes[i].proposer for i in step.accepted_path[: len(step.committed_ids)]] for step in drafted.steps
    ]
    counts = Counter(proposer for step in delivered for proposer in step)
    ids = [proposer["id"] for proposer in drafted.header.proposers]
    experts, branch = ids[:2], ids[2:3]
    levels = acceptance_by_depth(drafted.steps)
    accepted, tested = (sum(level[at] for level in levels) for at in (0, 1))

    def share(expert: int) -> int:
        count = counts[experts[expert]] if expert < len(experts) else 0
        return round(100 * count / counts.total()) if counts else 0

    return Figures(
        is_complete=plain.end_reason == drafted.end_reason == "eos",
        candidates=mean(len(step.nodes) - 1 for step in drafted.steps) if drafted.steps else 0.0,
        tokens=len(drafted.token_ids),
        speedup=plain.decode_seconds / drafted.decode_seconds if drafted.steps else 1.0,
        longest=max((len(step) for step in delivered), default=0),
        refused=round(100 * (1 - accepted / tested)) if tested else 0,
        first_expert=share(0),
        second_expert=share(1),
        both_by=_both_by(delivered, experts),
        contrastive=sum(counts[proposer] for proposer in branch),
    )


def _both_by(delivered: list[list[str]], experts: list[str]) -> int | None:
    """Return the number of steps until each of two experts had a candidate accepted."""
    seen: set[str] = set()
    for number, proposers in enumerate(delivered, start=1):
        seen.update(proposers)
        if len(experts) == 2 and seen.issuperset(experts):
            return number
    return None
