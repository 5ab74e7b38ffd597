"""One answer being decoded: propose, score, verify, commit.

The step is the same for every method; plain decoding is the loop whose tree is only its root. What an answer begins
with is made in `prepare.py`.
"""

from dataclasses import replace
from typing import NamedTuple

import torch

from jakiro.core.verify import Outcome
from jakiro.decode.clock import StepClock
from jakiro.decode.logprobs import ranked, scored
from jakiro.decode.prefill import Answer, Setup
from jakiro.decode.recorder import nodes_from, shown_plan
from jakiro.decode.request import Request
from jakiro.drafters.base import Committed, NoDraftLimits, Proposal, TreeLimits
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.drafters.checking import ProposalChecker
from jakiro.trace import Plan, Ranked, Scored, Step


class Begun(NamedTuple):
    """A step whose draft was asked for."""

    clock: StepClock
    plan: Plan | None
    proposal: Proposal


class Stream(Answer):
    """One answer being decoded: an iterator of steps that owns caches, noise and text state, and ends with them.

    Attributes:
        trace: grows by a step at a time.
        may_draft_ahead: no other answer of a race shares the device; then the next draft may begin while the host still
            describes a step.
    """

    def __init__(self, setup: Setup, request: Request) -> None:
        super().__init__(setup, request)
        self.may_draft_ahead, self._begun = True, None
        max_nodes, on_host = max(self._tree.nodes, 1 + MAX_CHAIN), self._target.device.type == "cpu"
        self._checker = self._session and ProposalChecker(
            setup.drafter, self._session, self._target.vocab_size, max_nodes, on_host
        )
        if self.finished:
            self._end()

    @property
    def finished(self) -> bool:
        return self.trace.end_reason is not None

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
        """Stops; what was decoded stays in the trace."""
        if not self.finished:
            self.trace.end_reason = "stopped"
            self._end()
        self._session = self._begun = None

    def keep_prefix(self) -> None:
        """Keeps what was read so far for prompts that begin like this text."""
        if self._prefix is not None:
            self._prefix.keep(self._runner, self._session)

    def _end(self) -> None:
        self.keep_prefix()
        self._release()

    @torch.inference_mode()
    def _step(self) -> Step:
        clock, plan, proposal = self._begin()
        self._runner.score(proposal.tree)
        clock.end("verify")
        outcome = self._runner.verify(proposal)
        reread = outcome.needs_full_sort
        if reread:
            outcome = self._runner.verify(proposal, whole_vocabulary=True)
        alternatives = self._alternatives(outcome)
        committed = self._commit(outcome)
        clock.end("other")
        is_dead_end = outcome.bonus_token_id is None
        if self._session is not None and not is_dead_end:
            self._session.observe(committed)
            clock.end("draft")
        committed_ids = self._text.take(committed.token_ids)
        if is_dead_end:
            self._text.end("no_token")
        self.trace.end_reason = self._text.end_reason
        if self._rule is not None and not self.finished:
            self._rule.advance(committed.token_ids, committed.ids)
        logprobs = self._logprobs(outcome, committed_ids)
        clock.end("other")
        ahead = not self.finished and self.may_draft_ahead and self._session is not None and self._runner.drafts_ahead
        if ahead:
            self._learn(plan, proposal, outcome, clock)
            self._begin_ahead(clock)
        header, index = self.trace.header, len(self.trace.steps)
        text = self._text.text() if index else header.first_text + self._text.text()
        shown = shown_plan(plan, outcome, proposal.note, reread, drafts=self._session is not None)
        if self._runner.note:
            shown = replace(shown, why=f"{shown.why} {self._runner.note}")
        proposers, rule = [proposer["id"] for proposer in header.proposers], self._rule
        forbidden = rule and rule.forbidden_by(outcome.token_ids)
        nodes = nodes_from(outcome, self._setup.token_text, proposers, forbidden)
        last_node = nodes[[0, *outcome.accepted_path][-1]]
        clock.end("other")
        if not ahead:
            self._learn(plan, proposal, outcome, clock)
        return Step(
            index=index,
            nodes=nodes,
            accepted_path=tuple(outcome.accepted_path),
            bonus_token_id=last_node.target_choice,
            bonus_piece=last_node.target_choice_piece,
            committed_ids=tuple(committed_ids),
            text=text,
            draft_ms=clock.ms["draft"] if index else clock.ms["draft"] + self._draft_ms,
            verify_ms=clock.ms["verify"],
            other_ms=clock.ms["other"],
            plan=shown,
            logprobs=logprobs,
            alternatives=alternatives[: len(committed_ids)],
        )

    def _begin(self) -> Begun:
        """Asks for a step's draft, unless that was done ahead."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            begun.clock.resume()
            return begun
        clock = StepClock(self._target.device)
        plan = self._choose_size()
        proposal = self._propose(plan)
        clock.end("draft")
        return Begun(clock, plan, proposal)

    def _begin_ahead(self, clock: StepClock) -> None:
        """Asks for the next step's draft, so that the device drafts while the host describes this step.

        It is dropped where the answer is stopped before.
        """
        clock.pause()
        self._begun = self._begin()
        self._begun.clock.pause()
        clock.resume()

    def _choose_size(self) -> Plan | None:
        """The next tree's size; None for trees of a fixed size."""
        if self._budget is None:
            return None
        return self._budget.choose(self.trace.header.num_prompt_tokens + self._text.num_tokens - 1)

    def _propose(self, plan: Plan | None) -> Proposal:
        """A proposal with a tree: the session's, or the root alone."""
        if self._session is None or (plan is not None and plan.levels == 0 and not self._setup.drafter.chains):
            return Proposal(self._runner.root_tree())
        tree, free = self._tree, None
        if plan is not None:
            tree = replace(tree, depth=plan.levels, nodes=plan.nodes)
            nodes = min(self._tree.nodes, 1 + MAX_CHAIN)
            free = NoDraftLimits(nodes, self._budget.least_chance, plan.expected_tokens - 1)
        draft_bias = self._rule.draft_bias if self._rule is not None and self._rule.steers_drafts else None
        proposal = self._session.propose(TreeLimits(tree, self._target.chains_only, free=free, draft_bias=draft_bias))
        self._checker.check(proposal, self._runner.root)
        return proposal if proposal.tree is not None else replace(proposal, tree=self._runner.root_tree())

    def _commit(self, outcome: Outcome) -> Committed:
        """Keeps the accepted rows of the cache."""
        needed = self._session is not None and self._setup.method.needs.logits
        logits = self._runner.logits(len(outcome.token_ids)) if needed else None
        ids, features = self._runner.commit(outcome)
        count = len(outcome.committed_ids)
        committed = Committed(outcome.committed_ids, ids[:count], features[:count], outcome, logits)
        if self._prefix is not None:
            self._prefix.add(committed.token_ids, features)
        return committed

    def _logprobs(self, outcome: Outcome, committed_ids: list[int]) -> tuple[tuple[Scored, ...], ...]:
        """Of the tokens that a step adds to the answer, where they are asked for."""
        if self._sampling.logprobs is None:
            return ()
        rows = [0, *outcome.accepted_path][: len(committed_ids)]
        logits = self._runner.logits(len(outcome.token_ids))[rows]
        return scored(logits, committed_ids, self._sampling.logprobs, self._setup.token_text)

    def _alternatives(self, outcome: Outcome) -> tuple[Ranked, ...]:
        """Of the tokens that a step commits, where they are asked for."""
        if not self._sampling.record_alternatives:
            return ()
        token_ids = outcome.committed_ids
        rows = [0, *outcome.accepted_path][: len(token_ids)]
        logits = self._runner.chosen_from(len(outcome.token_ids))[rows]
        return ranked(logits, token_ids, self._sampling.temperature, self._setup.token_text)

    def _learn(self, plan: Plan | None, proposal: Proposal, outcome: Outcome, clock: StepClock) -> None:
        """Lets the next trees' size follow from a step."""
        if plan is not None:
            accepted = len(outcome.accepted_path) if proposal.note is None else None
            self._budget.observe(plan, accepted, *clock.ms.values())
            clock.end("draft")
