"""Recording of steps: from an outcome on the host to the `Step` of a trace."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from jakiro.backends.step_clock import StepClock
from jakiro.config import SamplingParams
from jakiro.core.backend import BackendSession
from jakiro.core.verify import Outcome
from jakiro.decode.logprobs import token_alternatives, token_logprobs
from jakiro.text import TokenText
from jakiro.trace import Node, Plan, Ranked, Scored, Step

ROOT = "root"
# Replaces infinity, which JSON lacks: as a margin if only one token is possible, as a score if acceptance is impossible
_LARGEST = 1e9


class LogitRecords(NamedTuple):
    """Log probabilities and alternatives of committed tokens; empty unless requested.

    Attributes:
        logprobs: see `SamplingParams.logprobs`.
        alternatives: see `SamplingParams.record_alternatives`.
    """

    logprobs: tuple[tuple[Scored, ...], ...] = ()
    alternatives: tuple[Ranked, ...] = ()


class StepResult(NamedTuple):
    """A finished step on the host.

    Attributes:
        plan: chosen size; None for trees of a fixed size.
        note: the drafter's sentence on the tree; see `Proposal`.
        needed_full_sort: whether the step was verified twice, see `Plan.reread`.
        committed_ids: tokens that the step adds to the completion.
        text: text that the step adds to the completion.
        forbidden: for each node the setting that forbids it, or None; None if nothing is forbidden.
    """

    plan: Plan | None
    note: str | None
    outcome: Outcome
    needed_full_sort: bool
    committed_ids: Sequence[int]
    text: str
    logit_records: LogitRecords
    forbidden: Sequence[str | None] | None


@dataclass(slots=True)
class StepRecorder:
    """Makes the steps of one trace.

    Attributes:
        proposers: ids of the drafter's proposers, in its order.
        is_plain: whether nothing is drafted in any step.
        note: the backend's sentence for the plan of every step.
        opening_draft_ms: milliseconds of drafting before the first step; added to the first step.
        num_steps: steps recorded so far.
    """

    token_text: TokenText
    sampling: SamplingParams
    proposers: Sequence[str]
    is_plain: bool
    note: str = ""
    opening_draft_ms: float = 0.0
    num_steps: int = 0

    def record(self, result: StepResult, clock: StepClock) -> Step:
        """Return the step of a finished result."""
        outcome, index, num_committed = result.outcome, self.num_steps, len(result.committed_ids)
        nodes = make_nodes(outcome, self.token_text, self.proposers, result.forbidden)
        bonus_token_id = outcome.bonus_token_id
        plan = grown_plan(result.plan, outcome, result.note, result.needed_full_sort, self.is_plain)
        if self.note:
            plan = replace(plan, why=f"{plan.why} {self.note}")
        self.num_steps += 1
        return Step(
            index=index,
            nodes=nodes,
            accepted_path=tuple(outcome.accepted_path),
            bonus_token_id=bonus_token_id,
            bonus_piece=b"" if bonus_token_id is None else self.token_text.piece(bonus_token_id),
            committed_ids=tuple(result.committed_ids),
            text=result.text,
            draft_ms=clock.draft_ms if index else clock.draft_ms + self.opening_draft_ms,
            verify_ms=clock.verify_ms,
            other_ms=clock.other_ms,
            plan=plan,
            logprobs=result.logit_records.logprobs[:num_committed],
            alternatives=result.logit_records.alternatives[:num_committed],
        )

    def read_step_logits(self, backend: BackendSession, outcome: Outcome) -> LogitRecords:
        """Read the logits of the tokens that a step commits, if the request records them; call before `commit`."""
        num_nodes, token_ids = len(outcome.token_ids), outcome.new_ids
        path = [0, *outcome.accepted_path][: len(token_ids)]
        return self.read_logits(
            token_ids, lambda: backend.logits(num_nodes)[path], lambda: backend.processed_logits(num_nodes)[path]
        )

    def read_logits(
        self, token_ids: Sequence[int], logits: Callable[[], Tensor], processed_logits: Callable[[], Tensor]
    ) -> LogitRecords:
        """Read the logits of tokens, if the request records them.

        Args:
            logits: returns the target's (num_tokens, vocab_size) logits.
            processed_logits: returns the same logits after the logits processors.
        """
        sampling, logprobs, alternatives = self.sampling, (), ()
        if sampling.logprobs is not None:
            logprobs = token_logprobs(logits(), token_ids, sampling.logprobs, self.token_text)
        if sampling.record_alternatives:
            alternatives = token_alternatives(processed_logits(), token_ids, sampling.temperature, self.token_text)
        return LogitRecords(logprobs, alternatives)


def make_nodes(
    outcome: Outcome, token_text: TokenText, proposers: Sequence[str], forbidden: Sequence[str | None] | None = None
) -> tuple[Node, ...]:
    """Return the nodes of one step, root first.

    All numbers are finite, even those of a corrupted head: an unknown number is None or left out, a NaN score is the
    lowest score, a NaN margin is 0.

    Args:
        proposers: ids of the drafter's proposers, in its order.
        forbidden: for each node the setting that forbids it, or None; None if nothing is forbidden.
    """
    return tuple(
        Node(
            token_id=outcome.token_ids[index],
            piece=token_text.piece(outcome.token_ids[index]),
            parent=outcome.parents[index],
            depth=outcome.depths[index],
            draft_pass=outcome.draft_passes[index],
            score=_bounded(outcome.scores[index], -_LARGEST),
            draft_prob=_finite(outcome.draft_probs[index]),
            target_prob=_finite(outcome.target_probs[index]),
            proposer=proposers[outcome.proposers[index]] if index else ROOT,
            also_proposed_by=proposers_in(outcome.also[index], proposers),
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


def grown_plan(plan: Plan | None, outcome: Outcome, note: str | None, needed_full_sort: bool, is_plain: bool) -> Plan:
    """Return the plan of the tree that was grown.

    Args:
        plan: None for a tree of a fixed size.
        note: the drafter's sentence on the tree; see `Proposal`.
        is_plain: whether nothing is drafted in any step.
    """
    nodes, levels = len(outcome.token_ids), max(outcome.depths)
    if plan is not None and note is None:
        return replace(plan, levels=levels, nodes=nodes, reread=needed_full_sort)
    if note is None and is_plain:
        note = "Plain decoding: one token is checked at a time."
    elif note is None:
        candidates = "1 candidate" if nodes == 2 else f"{nodes - 1} candidates"
        note = f"Fixed tree: {candidates} over {levels} level{'s' if levels != 1 else ''}."
    return Plan(levels=levels, nodes=nodes, why=note, reread=needed_full_sort)


def proposers_in(bits: int, proposers: Sequence[str]) -> tuple[str, ...]:
    """Return the proposers of the set bits."""
    return tuple(name for place, name in enumerate(proposers) if bits >> place & 1) if bits else ()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bounded(value: float, default: float) -> float:
    """Return the value within ±`_LARGEST`; `default` replaces NaN."""
    return default if math.isnan(value) else min(max(value, -_LARGEST), _LARGEST)
