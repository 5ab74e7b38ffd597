"""One answer being decoded: propose, score, verify, commit.

The step is the same for every method; plain decoding is the loop whose tree is only its root.
"""

import platform
import weakref
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from jakiro.budget import Choice, TreeBudget
from jakiro.clock import StepClock
from jakiro.config import SamplingParams, TreeConfig
from jakiro.draft.context import ContextExpert
from jakiro.drafting import DraftSession
from jakiro.recording import nodes_from
from jakiro.sampling import KeyedNoise, choose
from jakiro.text import IncrementalDecoder, as_messages, encode_messages
from jakiro.trace import Header, Plan, Step, Trace
from jakiro.tree import DraftTree
from jakiro.verify import Outcome

if TYPE_CHECKING:
    from jakiro.generate import JakiroGenerator, Messages


class Stream:
    """One answer being decoded: an iterator of steps that owns caches, noise and text state, and ends with them."""

    def __init__(
        self,
        generator: "JakiroGenerator",
        messages: "Messages",
        sampling: SamplingParams,
        method: str,
        tree: TreeConfig,
        raw: bool,
    ) -> None:
        self._target, self._text = generator.target, generator.token_text
        self._sampling, self._tree_config = sampling, tree
        self._root_only = method == "autoregressive" or tree.root_only
        self._chain_only = method == "context"
        self._budget = None
        if tree.policy == "auto" and not self._root_only and generator.profile is not None:
            self._budget = TreeBudget(generator.profile, tree)
        prompt = encode_messages(generator.tokenizer, messages, raw_prompt=messages if raw else None)
        num_prompt_tokens, max_positions = len(prompt), self._target.max_positions
        if num_prompt_tokens > max_positions:
            raise ValueError(
                f"Your prompt has {num_prompt_tokens:,} tokens; this model reads {max_positions:,}. "
                f"Shorten it by {num_prompt_tokens - max_positions:,}."
            )
        self._limit = min(sampling.max_new_tokens, max_positions - num_prompt_tokens + 1)
        self._limit_reason = "length" if self._limit == sampling.max_new_tokens else "context"
        self._decoder = IncrementalDecoder(self._text)
        prompt_ids = torch.tensor(prompt, device=self._target.device)
        buckets = self._budget.buckets if self._budget else ()
        self._passes, release = generator.passes(sampling, tree, buckets, num_prompt_tokens, self._limit)
        self._release = weakref.finalize(self, release)
        self._release.atexit = False

        clock = StepClock(self._target.device)
        features, logits = self._passes.prefill(prompt_ids)
        first = self._choose_first(logits, num_prompt_tokens)
        first_token_id = int(first)
        prefill_ms = clock.total_ms()

        self._passes.begin(first)
        self._session: DraftSession | None = None
        self._context = None
        if tree.context and not self._root_only:
            self._context = ContextExpert([*prompt, first_token_id])
        if not self._root_only and not self._chain_only:
            self._session = self._passes.session(prompt_ids, features)
            self._session.buckets = buckets
        self._committed = 1
        first_text = self._decoder.push([first_token_id])
        ended = self._end_reason_after([first_token_id])
        self._waiting_text = first_text
        self.trace = Trace(
            Header(
                method=method,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                bit_identical=self._target.bit_identical,
                messages=() if raw else tuple(as_messages(messages)),
                raw_prompt=messages if raw else None,
                num_prompt_tokens=num_prompt_tokens,
                target={"name": self._target.name, "sha256": self._target.sha256},
                head=generator.head if method == "jakiro" else None,
                device=str(self._target.device),
                dtype=str(self._target.dtype).removeprefix("torch."),
                numerics=self._target.numerics,
                device_profile={"device": generator.device_name}
                | (self._budget.profile.to_dict() if self._budget else {}),
                versions=_versions(),
                sampling=_settings(sampling),
                tree=_settings(tree),
                first_token_id=first_token_id,
                first_piece=self._text.piece(first_token_id),
                first_text=first_text + (self._decoder.finish() if ended else ""),
                prefill_ms=prefill_ms,
                special_tokens={str(token_id): name for token_id, name in self._text.special_tokens.items()},
            ),
            end_reason=ended,
        )
        if self.finished:
            self._release()

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
            self._release()
        return step

    def close(self) -> None:
        """Stops; what was decoded stays in the trace."""
        if not self.finished:
            self.trace.end_reason = "stopped"
        self._session = None
        self._release()

    @torch.inference_mode()
    def _step(self) -> Step:
        clock = StepClock(self._target.device)
        chain, log_estimates = self._context.propose() if self._context else ([], [])
        context = self.trace.header.num_prompt_tokens + self._committed - 1
        choice = self._budget.choose(log_estimates, context) if self._budget else None
        tree = self._propose(choice, chain, log_estimates)
        clock.mark()
        self._passes.score(tree)
        clock.mark()
        outcome = self._passes.read(tree)
        reread = outcome.too_short
        if reread:
            outcome = self._passes.read(tree, whole_vocabulary=True)
        committed_ids = self._commit(outcome)
        reason = self._end_reason_after(committed_ids)
        text = self._waiting_text + self._decoder.push(committed_ids) + (self._decoder.finish() if reason else "")
        self._waiting_text = ""
        nodes = nodes_from(outcome, self._text)
        self.trace.end_reason = reason
        clock.mark()
        draft_ms, verify_ms, other_ms = clock.spans_ms()
        if choice is not None:
            accepted = len(outcome.accepted_path)
            self._budget.observe(choice, outcome.expected, accepted, draft_ms, verify_ms, other_ms)
        return Step(
            index=len(self.trace.steps),
            nodes=nodes,
            accepted_path=tuple(outcome.accepted_path),
            bonus_token_id=outcome.bonus_token_id,
            bonus_piece=self._text.piece(outcome.bonus_token_id),
            committed_ids=tuple(committed_ids),
            text=text,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            other_ms=other_ms,
            plan=self._plan(outcome, choice, reread),
        )

    def _propose(self, choice: Choice | None, chain_ids: list[int], log_estimates: list[float]) -> DraftTree:
        chain = self._passes.chain(chain_ids, log_estimates) if chain_ids else None
        if self._root_only or self._chain_only or (choice is not None and choice.levels == 0):
            copies = chain is not None and (self._chain_only or choice.nodes > 1)
            return self._passes.chain_tree(chain) if copies else self._passes.root_tree()
        config = self._tree_config
        if choice is not None:
            config = replace(config, depth=choice.levels, nodes=choice.nodes)
        return self._session.propose(config) if chain is None else self._session.propose(config, chain)

    def _choose_first(self, logits: Tensor, position: int) -> Tensor:
        """The token after the prompt, (1,) int64, chosen by the same rule as every other."""
        positions = torch.tensor([position], device=logits.device)
        noise = KeyedNoise(self._sampling.seed)
        choice = choose(logits, self._sampling, noise, positions)
        if bool(choice.prefix_too_short):
            choice = choose(logits, self._sampling, noise, positions, prefix_length=logits.shape[-1])
        return choice.token_ids

    def _commit(self, outcome: Outcome) -> list[int]:
        """Keeps the accepted rows, hands the new tokens to the drafter and returns them, cut where the answer ends."""
        ids, features = self._passes.commit(outcome)
        new_ids = [*outcome.accepted_ids, outcome.bonus_token_id]
        if self._context is not None:
            self._context.observe(new_ids)
        if self._session is not None:
            self._session.extend(ids, features)
        committed_ids = new_ids[: self._limit - self._committed]
        stops = [index for index, token_id in enumerate(committed_ids) if token_id in self._target.stop_ids]
        if stops:
            committed_ids = committed_ids[: stops[0] + 1]
        self._committed += len(committed_ids)
        return committed_ids

    def _end_reason_after(self, committed_ids: list[int]) -> str | None:
        if committed_ids[-1] in self._target.stop_ids:
            return "eos"
        return self._limit_reason if self._committed >= self._limit else None

    def _plan(self, outcome: Outcome, choice: Choice | None, reread: bool) -> Plan:
        nodes, levels = len(outcome.token_ids), max(outcome.depths)
        pause = getattr(self._session, "pause", None)
        if pause is not None:
            return Plan(levels=levels, nodes=nodes, why=pause, reread=reread)
        if choice is not None:
            return Plan(levels, nodes, choice.why, choice.expected_tokens, choice.expected_ms, choice.curve, reread)
        candidates = "1 candidate" if nodes == 2 else f"{nodes - 1} candidates"
        over = f"{candidates} over {levels} level{'s' if levels != 1 else ''}"
        if self._root_only:
            why = "Plain decoding: one token is checked at a time."
        elif self._chain_only:
            why = f"Copied from an earlier place: {candidates}." if nodes > 1 else "Nothing to copy from at this place."
        else:
            why = f"Fixed tree: {over}."
        return Plan(levels=levels, nodes=nodes, why=why, reread=reread)


def _settings(values: SamplingParams | TreeConfig) -> dict:
    return {name: getattr(values, name) for name in values.__dataclass_fields__}


def _versions() -> dict:
    from jakiro import __version__

    return {
        "jakiro": __version__,
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }
