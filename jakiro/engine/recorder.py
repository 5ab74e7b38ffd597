"""From an outcome to the nodes of a `Step`: names, bytes and probabilities as plain data."""

import math
from collections.abc import Sequence

from jakiro.core.verify import Outcome
from jakiro.text import TokenText
from jakiro.trace import Node

ROOT = "root"
# A row with one possible token has an infinite margin, which JSON cannot write
_LARGEST_MARGIN = 1e9


def nodes_from(outcome: Outcome, token_text: TokenText, proposers: Sequence[str]) -> tuple[Node, ...]:
    """The nodes of one step, root first.

    Args:
        proposers: ids of the drafter's proposers, in its order.
    """
    return tuple(
        Node(
            token_id=outcome.token_ids[index],
            piece=token_text.piece(outcome.token_ids[index]),
            parent=outcome.parents[index],
            depth=outcome.depths[index],
            draft_pass=outcome.draft_passes[index],
            score=outcome.scores[index],
            draft_prob=_number(outcome.draft_probs[index]),
            target_prob=_number(outcome.target_probs[index]),
            proposer=proposers[outcome.proposers[index]] if index else ROOT,
            also_proposed_by=names_in(outcome.also[index], proposers),
            evidence={
                name: tuple(rows[index]) for name, rows in outcome.evidence.items() if not math.isnan(rows[index][0])
            },
            target_choice=outcome.choices[index],
            target_choice_piece=token_text.piece(outcome.choices[index]),
            margin=min(outcome.margins[index], _LARGEST_MARGIN),
        )
        for index in range(len(outcome.token_ids))
    )


def names_in(bits: int, proposers: Sequence[str]) -> tuple[str, ...]:
    """The proposers whose bits are set."""
    return tuple(name for place, name in enumerate(proposers) if bits >> place & 1)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
