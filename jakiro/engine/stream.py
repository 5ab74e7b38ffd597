"""One answer being decoded: propose, score, verify, commit.

The step is the same for every method; plain decoding is the loop whose tree is only its root.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.sampling import choose
from jakiro.core.verify import Outcome
from jakiro.drafting.base import Committed, Drafter, DraftSession, FreeLimits, Method, Prompt, Proposal, TreeLimits
from jakiro.drafting.candidates import MAX_CHAIN
from jakiro.engine.budget import Size, TreeBudget
from jakiro.engine.clock import StepClock
from jakiro.engine.costs import DeviceProfile
from jakiro.engine.prefix import OwnPrefixes, Prefix
from jakiro.engine.recorder import nodes_from
from jakiro.engine.runner import Runner
from jakiro.system import package_versions
from jakiro.target.model import TargetModel
from jakiro.text import IncrementalDecoder, TokenText, UntilStop, as_messages, encode_messages
from jakiro.trace import Header, Plan, Step, Trace

Messages = str | Sequence[dict]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: messages, or with `raw` a bare text to continue, and the settings."""

    messages: Messages
    sampling: SamplingParams
    tree: TreeConfig
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Setup:
    """What an answer is decoded with.

    Attributes:
        profile: this device's costs under the method; None where trees do not choose their own size.
        sizes: those that they choose from.
        device_name: in words.
        borrow: (request, prompt tokens) to a runner for this answer, and the function that gives it back. The request
            asks for no more tokens than the target has positions for.
        prefixes: where to look for what the prompt begins with, and where to keep what is read; None for neither.
    """

    target: TargetModel
    token_text: TokenText
    method: Method
    drafter: Drafter
    profile: DeviceProfile | None
    sizes: tuple[Size, ...]
    device_name: str
    borrow: Callable[[Request, int], tuple[Runner, Callable[[], object]]]
    prefixes: OwnPrefixes | None = None


class Begun(NamedTuple):
    """A step whose draft was asked for."""

    clock: StepClock
    plan: Plan | None
    proposal: Proposal


class Stream:
    """One answer being decoded: an iterator of steps that owns caches, noise and text state, and ends with them.

    Attributes:
        alone: no other answer of a race shares the device; then the next draft may begin while the host still
            describes a step.
    """

    def __init__(self, setup: Setup, request: Request) -> None:
        self._target, self._text, self._drafter = setup.target, setup.token_text, setup.drafter
        self._method, self._sampling = setup.method, request.sampling
        self._proposers = [proposer.id for proposer in self._drafter.proposers]
        tree = request.tree
        self._tree = replace(tree, width=1) if self._target.chains_only else tree
        self._budget = None if setup.profile is None else TreeBudget(setup.profile, setup.sizes)
        prompt = encode_messages(
            self._target.tokenizer, request.messages, raw_prompt=request.messages if request.raw else None
        )
        self._refuse_unknown(prompt)
        self._limit = self._max_answer_tokens(len(prompt))
        self._limit_reason = "length" if self._limit == self._sampling.max_new_tokens else "context"
        self._decoder = IncrementalDecoder(self._text)
        prompt_ids = torch.tensor(prompt, device=self._target.device)
        # Whoever makes room for the answer is told of its limit, not of a wish that may be far longer
        within = replace(request, sampling=replace(request.sampling, max_new_tokens=self._limit))
        self._runner, release = setup.borrow(within, len(prompt))
        self._release = weakref.finalize(self, release)
        self._release.atexit = False

        clock = StepClock(self._target.device)
        self._prefixes = setup.prefixes if self._runner.max_reusable_tokens else None
        earlier = self._prefixes and self._prefixes.find(self._target, prompt)
        features, logits = self._read(prompt_ids, earlier)
        first = self._choose_first(logits, len(prompt))
        first_token_id = int(first)
        clock.end("other")

        self._runner.begin(first)
        self._session: DraftSession | None = None
        if not tree.root_only:
            head_rows = earlier.head_rows if earlier else {}
            whole = Prompt([*prompt, first_token_id], torch.cat([prompt_ids, first]), features, head_rows)
            self._session = self._runner.session(self._drafter, whole)
            clock.end("draft")
        self.alone, self._begun = True, None
        # Drafting time before the first step counts as that step's
        self._start_ms = clock.ms["draft"]
        # All tokens that the caches hold, even those after a cut at the end, and the features of all but the last
        self._known_ids, self._features = [*prompt, first_token_id], [features]
        self._until = UntilStop(self._sampling.stop) if self._sampling.stop else None
        self._committed, self._ready_text = 0, ""
        ended = self._end_reason_after(self._cut([first_token_id]))
        self._waiting_text = self._text_of([first_token_id], ended)
        self.trace = Trace(
            Header(
                method=self._method.name,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                bit_identical=self._target.bit_identical and self._target.rounds_alike(tree.nodes),
                messages=() if request.raw else tuple(as_messages(request.messages)),
                raw_prompt=request.messages if request.raw else None,
                num_prompt_tokens=len(prompt),
                target={"name": self._target.name, "sha256": self._target.sha256},
                drafter=self._drafter.info,
                proposers=tuple(asdict(proposer) for proposer in self._drafter.proposers),
                device=str(self._target.device),
                dtype=str(self._target.dtype).removeprefix("torch."),
                numerics=self._target.numerics,
                device_profile={"device": setup.device_name} | (self._budget.profile.to_dict() if self._budget else {}),
                versions=package_versions("jakiro", "torch", "transformers"),
                sampling=asdict(self._sampling) | {"stop": list(self._sampling.stop)},
                tree=asdict(tree),
                first_token_id=first_token_id,
                first_piece=self._text.piece(first_token_id),
                first_text=self._waiting_text,
                prefill_ms=clock.ms["other"],
                num_reused_tokens=len(earlier.token_ids) if earlier else 0,
                special_tokens={str(token_id): name for token_id, name in self._text.special_tokens.items()},
            ),
            end_reason=ended,
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
        if self._prefixes is None:
            return
        known_ids = self._known_ids[:-1][: self._runner.max_reusable_tokens]
        self._prefixes.add(
            self._target,
            known_ids,
            lambda: (self._runner.rows(len(known_ids)), torch.cat(self._features)[: len(known_ids)].clone()),
            self._session.head_rows() if self._session is not None else {},
        )

    def _end(self) -> None:
        self.keep_prefix()
        self._release()

    def _read(self, prompt_ids: Tensor, earlier: Prefix | None) -> tuple[Tensor, Tensor]:
        """Features of the whole prompt and the last position's logits; what was read earlier is not read again."""
        if earlier is None:
            return self._runner.prefill(prompt_ids)
        self._runner.begin_with(earlier.rows)
        features, logits = self._runner.prefill(prompt_ids[len(earlier.token_ids) :])
        return torch.cat([earlier.features, features]), logits

    def _begin(self) -> Begun:
        """Asks for a step's draft."""
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

    @torch.inference_mode()
    def _step(self) -> Step:
        if self._begun is None:
            clock, plan, proposal = self._begin()
        else:
            (clock, plan, proposal), self._begun = self._begun, None
            clock.resume()
        self._runner.score(proposal.tree)
        clock.end("verify")
        outcome = self._runner.read(proposal)
        reread = outcome.needs_full_sort
        if reread:
            outcome = self._runner.read(proposal, whole_vocabulary=True)
        committed = self._commit(outcome)
        clock.end("other")
        if self._session is not None:
            self._session.observe(committed)
            clock.end("draft")
        committed_ids = self._cut(committed.token_ids)
        reason = self.trace.end_reason = self._end_reason_after(committed_ids)
        clock.end("other")
        ahead = reason is None and self.alone and self._session is not None and self._runner.drafts_ahead
        if ahead:
            self._learn(plan, proposal, outcome, clock)
            self._begin_ahead(clock)
        text = self._waiting_text + self._text_of(committed_ids, reason)
        self._waiting_text = ""
        shown = self._shown_plan(outcome, plan, proposal.note, reread)
        clock.end("other")
        before = clock.ms["other"]
        nodes = nodes_from(outcome, self._text, self._proposers)
        clock.end("other")
        self.trace.recording_ms += clock.ms["other"] - before
        if not ahead:
            self._learn(plan, proposal, outcome, clock)
        draft_ms, self._start_ms = clock.ms["draft"] + self._start_ms, 0.0
        return Step(
            index=len(self.trace.steps),
            nodes=nodes,
            accepted_path=tuple(outcome.accepted_path),
            bonus_token_id=outcome.bonus_token_id,
            bonus_piece=self._text.piece(outcome.bonus_token_id),
            committed_ids=tuple(committed_ids),
            text=text,
            draft_ms=draft_ms,
            verify_ms=clock.ms["verify"],
            other_ms=clock.ms["other"],
            plan=shown,
        )

    def _learn(self, plan: Plan | None, proposal: Proposal, outcome: Outcome, clock: StepClock) -> None:
        """Lets the next trees' size follow from a step."""
        if plan is not None:
            accepted = len(outcome.accepted_path) if proposal.note is None else None
            self._budget.observe(plan, accepted, *clock.ms.values())
            clock.end("draft")

    def _choose_size(self) -> Plan | None:
        """The next tree's size; None for trees of a fixed size."""
        if self._budget is None:
            return None
        return self._budget.choose(self.trace.header.num_prompt_tokens + self._committed - 1)

    def _propose(self, plan: Plan | None) -> Proposal:
        """A proposal with a tree: the session's, or the root alone."""
        if self._session is None or (plan is not None and plan.levels == 0 and not self._drafter.chains):
            return Proposal(self._runner.root_tree())
        tree, free = self._tree, None
        if plan is not None:
            tree = replace(tree, depth=plan.levels, nodes=plan.nodes)
            nodes = min(self._tree.nodes, 1 + MAX_CHAIN)
            free = FreeLimits(nodes, self._budget.least_chance, plan.expected_tokens - 1)
        proposal = self._session.propose(TreeLimits(tree, self._target.chains_only, free=free))
        return proposal if proposal.tree is not None else replace(proposal, tree=self._runner.root_tree())

    def _refuse_unknown(self, prompt: list[int]) -> None:
        """Raises ValueError where the tokenizer gave a token that the model has no embedding for."""
        known = self._target.vocab_size
        unknown = next((token_id for token_id in prompt if token_id >= known), None)
        if unknown is not None:
            name = self._text.piece(unknown).decode(errors="replace")
            raise ValueError(
                f"Your prompt holds “{name}”, token {unknown:,} of the tokenizer; this model knows {known:,} tokens. "
                "Leave it out, or resize the model's embedding to its tokenizer."
            )

    def _max_answer_tokens(self, num_prompt_tokens: int) -> int:
        """The most tokens the answer may have.

        Raises:
            ValueError: the prompt is longer than the model reads.
        """
        most = self._target.max_positions
        if num_prompt_tokens > most:
            raise ValueError(
                f"Your prompt has {num_prompt_tokens:,} tokens; this model reads {most:,}. "
                f"Shorten it by {num_prompt_tokens - most:,}."
            )
        return min(self._sampling.max_new_tokens, most - num_prompt_tokens + 1)

    def _choose_first(self, logits: Tensor, position: int) -> Tensor:
        """The token after the prompt, (1,) int64, chosen by the same rule as every other."""
        positions = torch.tensor([position], device=logits.device)
        noise = KeyedNoise(self._sampling.seed)
        choice = choose(logits, self._sampling, noise, positions)
        if bool(choice.needs_full_sort):
            choice = choose(logits, self._sampling, noise, positions, prefix_length=logits.shape[-1])
        return choice.token_ids

    def _commit(self, outcome: Outcome) -> Committed:
        """Keeps the accepted rows of the cache."""
        needed = self._session is not None and self._method.needs.logits
        logits = self._runner.logits(len(outcome.token_ids)) if needed else None
        ids, features = self._runner.commit(outcome)
        committed = Committed([*outcome.accepted_ids, outcome.bonus_token_id], ids, features, outcome, logits)
        if self._prefixes is not None:
            self._known_ids += committed.token_ids
            self._features.append(features)
        return committed

    def _cut(self, new_ids: list[int]) -> list[int]:
        """The new tokens that belong to the answer: up to the first stop token, which is included, or the limit, or the
        token in which a stop text is complete.
        """
        committed_ids = new_ids[: self._limit - self._committed]
        stops = [index for index, token_id in enumerate(committed_ids) if token_id in self._target.stop_ids]
        if stops:
            committed_ids = committed_ids[: stops[0] + 1]
        if self._until is not None:
            committed_ids = self._until_stop(committed_ids)
        self._committed += len(committed_ids)
        return committed_ids

    def _until_stop(self, new_ids: list[int]) -> list[int]:
        """The tokens up to that in which a stop text is complete; their text waits in `_ready_text`."""
        for count, token_id in enumerate(new_ids, start=1):
            self._ready_text += self._until.push(self._decoder.push([token_id]))
            if self._until.found:
                return new_ids[:count]
        if new_ids[-1] in self._target.stop_ids or self._committed + len(new_ids) >= self._limit:
            self._ready_text += self._until.push(self._decoder.finish()) + self._until.finish()
        return new_ids

    def _text_of(self, committed_ids: list[int], end_reason: str | None) -> str:
        """The text that new tokens complete, and at the end what still waited."""
        if self._until is not None:
            ready, self._ready_text = self._ready_text, ""
            return ready
        return self._decoder.push(committed_ids) + (self._decoder.finish() if end_reason else "")

    def _end_reason_after(self, committed_ids: list[int]) -> str | None:
        if self._until is not None and self._until.found:
            return "stop"
        if committed_ids[-1] in self._target.stop_ids:
            return "eos"
        return self._limit_reason if self._committed >= self._limit else None

    def _shown_plan(self, outcome: Outcome, plan: Plan | None, note: str | None, reread: bool) -> Plan:
        """The plan with the tree that was really grown, as the step records it."""
        nodes, levels = len(outcome.token_ids), max(outcome.depths)
        if plan is not None and note is None:
            return replace(plan, levels=levels, nodes=nodes, reread=reread)
        if note is None and self._session is None:
            note = "Plain decoding: one token is checked at a time."
        elif note is None:
            candidates = "1 candidate" if nodes == 2 else f"{nodes - 1} candidates"
            note = f"Fixed tree: {candidates} over {levels} level{'s' if levels != 1 else ''}."
        return Plan(levels=levels, nodes=nodes, why=note, reread=reread)
