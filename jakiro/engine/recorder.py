"""From an outcome to a `Step`: names, bytes and probabilities as plain data."""

import math

from jakiro.core.tree import BRANCH_CONTEXT, BRANCH_CONTRASTIVE
from jakiro.core.verify import Outcome
from jakiro.text import TokenText
from jakiro.trace import Node


def nodes_from(outcome: Outcome, token_text: TokenText) -> tuple[Node, ...]:
    """The nodes of one step, root first."""
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
            proposer=_proposer(outcome, index),
            also_proposed_by=("context",) if outcome.also_context[index] else (),
            router_weights=tuple(weight for weight in outcome.router_weights[index] if not math.isnan(weight)),
            expert_contributions=_numbers(outcome.contributions[index]),
            residual_contribution=_number(outcome.residuals[index]),
            target_choice=outcome.choices[index],
            target_choice_piece=token_text.piece(outcome.choices[index]),
            margin=min(outcome.margins[index], _LARGEST_MARGIN),
        )
        for index in range(len(outcome.token_ids))
    )


# A row with one possible token has an infinite margin, which JSON has no word for.
_LARGEST_MARGIN = 1e9


def _proposer(outcome: Outcome, index: int) -> str:
    return proposer_name(outcome.branches[index], outcome.proposers[index]) if index else "root"


def proposer_name(branch: int, expert: int) -> str:
    """Who proposed a candidate, in the words of `trace.Node`; `expert` counts for the main branch only."""
    if branch == BRANCH_CONTRASTIVE:
        return "contrastive"
    if branch == BRANCH_CONTEXT:
        return "context"
    return f"expert_{expert}"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _numbers(values: list[float]) -> tuple[float, ...] | None:
    return None if not values or any(math.isnan(value) for value in values) else tuple(values)
