"""From an outcome to the nodes of a `Step`: names, bytes and probabilities as plain data."""

import math
import time
from collections.abc import Sequence

from jakiro.core.verify import Outcome
from jakiro.text import TokenText
from jakiro.trace import Node, Step, Trace

ROOT = "root"
# A row with one possible token has an infinite margin, which JSON has no word for.
_LARGEST_MARGIN = 1e9


def nodes_from(outcome: Outcome, token_text: TokenText, proposers: Sequence[str]) -> tuple[Node, ...]:
    """The nodes of one step, root first.

    Args:
        proposers: ids of the drafter's, in its order.
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


def milliseconds_to_record(trace: Trace, token_text: TokenText) -> float:
    """Milliseconds that making all nodes of a finished trace takes, given what each step's one read brought."""
    proposers = [proposer["id"] for proposer in trace.header.proposers]
    outcomes = [_outcome_of(step, proposers) for step in trace.steps]
    start = time.perf_counter()
    for outcome in outcomes:
        nodes_from(outcome, token_text, proposers)
    return 1000 * (time.perf_counter() - start)


def _outcome_of(step: Step, proposers: list[str]) -> Outcome:
    """What the step's read brought, from its nodes."""
    nodes = step.nodes
    names = {name: len(values) for node in nodes for name, values in node.evidence.items()}

    def column(name: str) -> list:
        return [math.nan if getattr(node, name) is None else getattr(node, name) for node in nodes]

    return Outcome(
        token_ids=column("token_id"),
        parents=column("parent"),
        depths=column("depth"),
        scores=column("score"),
        draft_passes=column("draft_pass"),
        draft_probs=column("draft_prob"),
        proposers=[-1 if node.proposer == ROOT else proposers.index(node.proposer) for node in nodes],
        also=[sum(1 << proposers.index(name) for name in node.also_proposed_by) for node in nodes],
        target_probs=column("target_prob"),
        choices=column("target_choice"),
        margins=column("margin"),
        evidence={
            name: [list(node.evidence.get(name, (math.nan,) * width)) for node in nodes]
            for name, width in names.items()
        },
        forecast=[],
        accepted_path=list(step.accepted_path),
        bonus_token_id=step.bonus_token_id,
        too_short=False,
    )
