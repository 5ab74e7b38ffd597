"""What recording costs a step: the nodes of a finished trace are made once more, with a clock around it."""

import math
import time

from jakiro.core.tree import BRANCH_CONTEXT, BRANCH_CONTRASTIVE, BRANCH_MAIN
from jakiro.core.verify import Outcome
from jakiro.engine.recorder import nodes_from
from jakiro.text import TokenText
from jakiro.trace import Step, Trace

_BRANCHES = {"contrastive": BRANCH_CONTRASTIVE, "context": BRANCH_CONTEXT}


def milliseconds_to_record(trace: Trace, token_text: TokenText) -> float:
    """Milliseconds that making all nodes of a trace takes, given what each step's one read brought."""
    outcomes = [_outcome_of(step) for step in trace.steps]
    start = time.perf_counter()
    for outcome in outcomes:
        nodes_from(outcome, token_text)
    return 1000 * (time.perf_counter() - start)


def _outcome_of(step: Step) -> Outcome:
    nodes = step.nodes

    def column(name: str) -> list:
        return [math.nan if getattr(node, name) is None else getattr(node, name) for node in nodes]

    return Outcome(
        token_ids=column("token_id"),
        parents=column("parent"),
        depths=column("depth"),
        scores=column("score"),
        draft_passes=column("draft_pass"),
        branches=[_BRANCHES.get(node.proposer, BRANCH_MAIN) for node in nodes],
        proposers=[int(node.proposer[-1]) if node.proposer.startswith("expert_") else -1 for node in nodes],
        also_context=[bool(node.also_proposed_by) for node in nodes],
        draft_probs=column("draft_prob"),
        residuals=column("residual_contribution"),
        target_probs=column("target_prob"),
        choices=column("target_choice"),
        margins=column("margin"),
        router_weights=[list(node.router_weights) for node in nodes],
        contributions=[list(node.expert_contributions or ()) for node in nodes],
        expected=[],
        accepted_path=list(step.accepted_path),
        bonus_token_id=step.bonus_token_id,
        too_short=False,
    )
