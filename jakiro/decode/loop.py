"""The decode loop of one answer: draft a tree, score it, verify it, commit the accepted tokens.

The step is the same for every method; in plain decoding the tree is only the root.
"""

import weakref
from dataclasses import replace
from typing import NamedTuple

import torch

from jakiro.backends.step_clock import StepClock, start_clock
from jakiro.config import SamplingParams
from jakiro.core.verify import Outcome
from jakiro.decode.prefill import (
    DecodeContext,
    choose_first_token,
    make_header,
    make_processors,
    prefill,
    start_completion,
)
from jakiro.decode.prefix_cache import GrowingPrefix
from jakiro.decode.recorder import StepRecorder, StepResult
from jakiro.decode.request import GenerationRequest
from jakiro.drafters.base import Committed, Context, DraftRequest, Proposal
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.drafters.checking import ProposalChecker
from jakiro.drafters.plain import PlainSession
from jakiro.ops.device import reads_are_free
from jakiro.trace import Plan, Step, Trace


class PendingDraft(NamedTuple):
    """A step with a launched draft; its tree is not verified yet."""

    clock: StepClock
    plan: Plan | None
    proposal: Proposal


class Stream:
    """One answer being decoded: an iterator of steps that owns the answer's caches until it ends.

    Attributes:
        trace: grows with every step.
        may_draft_ahead: whether the next draft may be launched while the host records a step; False in a race, because
            the other methods use the device during this time.

    Raises:
        ValueError: the prompt is too long or has a token unknown to the target, or the given beginning of the answer
            already ends the answer.
    """

    def __init__(self, context: DecodeContext, request: GenerationRequest) -> None:
        # `max_new_tokens` may be larger than the target's context, which limits the size of the caches
        limited = request.limited_to(context.target.max_positions)
        if not context.backend.max_reusable_tokens:
            request = replace(request, prefixes=None)
        self._context, self._target = context, context.target
        self._completion = start_completion(context, request, limited.sampling.max_new_tokens)
        self._processors = make_processors(context, request)
        self._tree = replace(request.tree, width=1) if self._target.chains_only else request.tree
        self.may_draft_ahead = not request.tree.root_only
        self._pending: PendingDraft | None = None
        largest_tree, num_prompt_tokens = context.largest_tree(request.tree), len(request.prompt_ids)
        self._backend = context.backend.open(
            context.drafter, limited.sampling, largest_tree, num_prompt_tokens, limited.max_length
        )
        self._release = weakref.finalize(self, context.backend.close, self._backend)
        self._release.atexit = False
        try:
            self._open(request, limited.sampling)
        except BaseException:
            self._release()
            raise
        if self.finished:
            self._end()

    def _open(self, request: GenerationRequest, limited: SamplingParams) -> None:
        """Read the prompt, choose the first token, start drafting and make the header.

        Args:
            limited: the request's sampling settings, with `max_new_tokens` reduced to what the target can read.
        """
        context, backend, sampling = self._context, self._backend, request.sampling
        clock = StepClock()
        prefilled = prefill(backend, self._target, request)
        first = choose_first_token(prefilled, self._processors, sampling)
        prefill_ms = clock.other_ms
        token_ids, prefix = [*request.prompt_ids, first.token_id], prefilled.prefix
        with clock.draft():
            backend.begin(first.ids, self._processors)
            self._session = PlainSession()
            if not request.tree.root_only:
                head_rows = prefix.head_rows if prefix is not None else {}
                ids = torch.cat([prefilled.prompt_ids, first.ids])
                prompt = Context(token_ids, ids, prefilled.features, head_rows, request.prediction_ids)
                self._session = backend.drafter.start(prompt, limited, backend.draft_noise)
        max_nodes, on_host = max(self._tree.nodes, 1 + MAX_CHAIN), reads_are_free(self._target.device)
        self._checker = ProposalChecker(context.drafter, self._session, self._target.vocab_size, max_nodes, on_host)
        self._recorder = StepRecorder(
            context.token_text,
            sampling,
            proposers=[proposer.id for proposer in context.drafter.proposers],
            is_plain=request.tree.root_only,
            note=backend.note,
            opening_draft_ms=0.0 if request.tree.root_only else clock.draft_ms,
        )
        self._completion.take([first.token_id])
        self._advance_processors([first.token_id], first.ids)
        logit_records = self._recorder.read_logits(
            [first.token_id], lambda: prefilled.logits, lambda: first.processed_logits
        )
        first_text = self._completion.text()
        header = make_header(context, request, first, first_text, logit_records, prefix, prefill_ms)
        self.trace = Trace(header, end_reason=self._completion.end_reason)
        self._growing_prefix = None
        if request.prefixes is not None:
            self._growing_prefix = GrowingPrefix(request.prefixes, context.backend, token_ids, prefilled.features)

    @property
    def finished(self) -> bool:
        return self.trace.end_reason is not None

    @property
    def _num_tokens(self) -> int:
        """Number of tokens of prompt and completion."""
        return self.trace.header.num_prompt_tokens + self._completion.num_tokens

    @property
    def _root_id(self) -> int:
        """The last committed token, which is the root of the next tree."""
        steps = self.trace.steps
        return steps[-1].committed_ids[-1] if steps else self.trace.header.first_token_id

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Step:
        if self.finished:
            raise StopIteration
        step = self._step()
        self.trace.steps.append(step)
        if self.finished:
            self._end()
        return step

    def close(self) -> None:
        """Stop decoding; the trace keeps the finished steps."""
        if not self.finished:
            self.trace.end_reason = "stopped"
            self._end()
        # Frees the drafter's caches
        self._session, self._pending = PlainSession(), None

    def keep_prefix(self) -> None:
        """Store the cache rows of this answer, to be reused by later prompts with the same beginning."""
        if self._growing_prefix is not None:
            self._growing_prefix.keep(self._backend, self._session)

    @torch.inference_mode()
    def _step(self) -> Step:
        """Draft a tree, score it, verify it and commit the accepted tokens."""
        clock, plan, proposal = self._take_draft()
        with clock.target_pass():
            self._backend.score(proposal.tree)
        outcome, needed_full_sort = self._verify(proposal, clock)
        self._checker.check_outcome(outcome, self._root_id)
        logit_records = self._recorder.read_step_logits(self._backend, outcome)
        committed = self._commit(outcome)
        is_dead_end = outcome.bonus_token_id is None
        if not is_dead_end:
            with clock.draft():
                self._session.observe(committed)
        committed_ids = self._completion.take(committed.token_ids)
        if is_dead_end:
            self._completion.end("no_token")
        self.trace.end_reason = self._completion.end_reason
        self._advance_processors(committed.token_ids, committed.ids)
        self._update_budget(plan, proposal, outcome, clock)
        if self.may_draft_ahead and self._backend.can_draft_ahead and not self.finished:
            self._draft_ahead(clock)
        text, forbidden = self._new_text(), self._processors and self._processors.forbidden_by(outcome.token_ids)
        result = StepResult(
            plan, proposal.note, outcome, needed_full_sort, committed_ids, text, logit_records, forbidden
        )
        return self._recorder.record(result, clock)

    def _take_draft(self) -> PendingDraft:
        """Return the draft that was launched ahead, or launch one."""
        if self._pending is None:
            return self._launch_draft()
        pending, self._pending = self._pending, None
        pending.clock.resume()
        return pending

    def _launch_draft(self) -> PendingDraft:
        """Choose the next tree's size and launch its draft."""
        clock = start_clock(self._target.device)
        with clock.draft():
            plan = None
            if self._context.budget is not None:
                plan = self._context.budget.next_tree(self._num_tokens - 1)
            proposal = self._propose(plan)
        return PendingDraft(clock, plan, proposal)

    def _draft_ahead(self, clock: StepClock) -> None:
        """Launch the next draft, so that the device drafts while the host records this step.

        If the answer is stopped before the next step, this draft is discarded.
        """
        clock.pause()
        self._pending = self._launch_draft()
        self._pending.clock.pause()
        clock.resume()

    def _propose(self, plan: Plan | None) -> Proposal:
        """Return a proposal that has a tree: the drafter's tree, or a root-only tree if nothing is drafted."""
        if plan is not None and plan.levels == 0 and not self._context.drafter.chains:
            return Proposal(self._backend.root_tree())
        request = DraftRequest(self._tree, self._target.chains_only, vocab_size=self._target.vocab_size)
        if self._processors is not None and self._processors.steers_drafts:
            request = replace(request, draft_bias=self._processors.draft_bias)
        if plan is not None:
            request = replace(
                request,
                tree=replace(self._tree, depth=plan.levels, nodes=plan.nodes),
                undrafted_nodes=min(self._tree.nodes, 1 + MAX_CHAIN),
                min_probability=self._context.budget.least_chance,
                drafted_tokens=plan.expected_tokens - 1,
            )
        proposal = self._session.propose(request)
        self._checker.check(proposal, self._backend.root, self._session.num_tokens, self._num_tokens)
        return proposal if proposal.tree is not None else replace(proposal, tree=self._backend.root_tree())

    def _verify(self, proposal: Proposal, clock: StepClock) -> tuple[Outcome, bool]:
        """Return the outcome of the scored tree, and whether all logits had to be sorted to find it."""
        outcome = self._backend.verify(proposal.tree)
        clock.read_events()
        if not outcome.needs_full_sort:
            return outcome, False
        return self._backend.verify(proposal.tree, whole_vocabulary=True), True

    def _commit(self, outcome: Outcome) -> Committed:
        """Commit the accepted tokens and return them for the drafter."""
        logits = self._backend.logits(len(outcome.token_ids)) if self._context.method.needs.logits else None
        ids, features = self._backend.commit(outcome)
        token_ids = outcome.new_ids
        ids, features = ids[: len(token_ids)], features[: len(token_ids)]
        committed = Committed(token_ids, ids, features, outcome, logits)
        if self._growing_prefix is not None:
            self._growing_prefix.add(token_ids, features)
        return committed

    def _advance_processors(self, token_ids: list[int], ids: torch.Tensor) -> None:
        """Give committed tokens to the logits processors."""
        if self._processors is not None and self._completion.end_reason is None:
            self._processors.advance(token_ids, ids)

    def _update_budget(self, plan: Plan | None, proposal: Proposal, outcome: Outcome, clock: StepClock) -> None:
        """Update the tree budget with the result of a step."""
        if plan is not None:
            # A proposal with a note, such as a copy of earlier text, has not the planned tree
            accepted = len(outcome.accepted_path) if proposal.note is None else None
            times = clock.draft_ms, clock.verify_ms, clock.other_ms
            with clock.draft():
                self._context.budget.update(plan, accepted, *times)

    def _new_text(self) -> str:
        """Return the text that a step adds; the first step also returns the text of the token after the prompt."""
        text = self._completion.text()
        return text if self.trace.steps else self.trace.header.first_text + text

    def _end(self) -> None:
        self.keep_prefix()
        self._release()
