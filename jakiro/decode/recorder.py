"""From an outcome to what a `Step` shows: nodes with names, bytes and probabilities, and why the tree has its size."""

import math
from collections.abc import Sequence
from dataclasses import replace

from jakiro.core.verify import Outcome
from jakiro.text import TokenText
from jakiro.trace import Node, Plan

ROOT = "root"
# What stands for an infinite number, which JSON cannot write: the margin of a row with one possible token, the score of
# a candidate that cannot be accepted
_LARGEST = 1e9


def nodes_from(
    outcome: Outcome, token_text: TokenText, proposers: Sequence[str], forbidden: Sequence[str | None] | None = None
) -> tuple[Node, ...]:
    """The nodes of one step, root first.

    All their numbers are finite, whatever a damaged head made of them: what is unknown is None or left out; a score
    that is no number is the least one, a margin that is none is 0.

    Args:
        proposers: ids of the drafter's proposers, in its order.
        forbidden: of each node, the setting that forbids it; None where none forbids any.
    """
    return tuple(
        Node(
            token_id=outcome.token_ids[index],
            piece=token_text.piece(outcome.token_ids[index]),
            parent=outcome.parents[index],
            depth=outcome.depths[index],
            draft_pass=outcome.draft_passes[index],
            score=_bounded(outcome.scores[index], -_LARGEST),
            draft_prob=_number(outcome.draft_probs[index]),
            target_prob=_number(outcome.target_probs[index]),
            proposer=proposers[outcome.proposers[index]] if index else ROOT,
            also_proposed_by=names_in(outcome.also[index], proposers),
            evidence={
                name: tuple(rows[index])
                for name, rows in outcome.evidence.items()
                if all(map(math.isfinite, rows[index]))
            },
            target_choice=outcome.choices[index],
            target_choice_piece=token_text.piece(outcome.choices[index]),
            margin=_bounded(outcome.margins[index], 0.0),
            forbidden_by=forbidden[index] if forbidden else None,
        )
        for index in range(len(outcome.token_ids))
    )


def shown_plan(plan: Plan | None, outcome: Outcome, note: str | None, reread: bool, drafts: bool) -> Plan:
    """The plan with the tree that was really grown.

    Args:
        plan: None for a tree of a fixed size.
        note: what the drafter says of the tree's size; see `Proposal`.
        drafts: whether there is a drafter.
    """
    nodes, levels = len(outcome.token_ids), max(outcome.depths)
    if plan is not None and note is None:
        return replace(plan, levels=levels, nodes=nodes, reread=reread)
    if note is None and not drafts:
        note = "Plain decoding: one token is checked at a time."
    elif note is None:
        candidates = "1 candidate" if nodes == 2 else f"{nodes - 1} candidates"
        note = f"Fixed tree: {candidates} over {levels} level{'s' if levels != 1 else ''}."
    return Plan(levels=levels, nodes=nodes, why=note, reread=reread)


def names_in(bits: int, proposers: Sequence[str]) -> tuple[str, ...]:
    """The proposers whose bits are set."""
    return tuple(name for place, name in enumerate(proposers) if bits >> place & 1) if bits else ()


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bounded(value: float, unknown: float) -> float:
    """The value within ±`_LARGEST`; `unknown` stands for what is no number."""
    return unknown if math.isnan(value) else min(max(value, -_LARGEST), _LARGEST)
