"""Opening of an answer: read the prompt, choose the first token, describe the run."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.backend import Backend, BackendSession
from jakiro.core.grammar import GrammarProcessor
from jakiro.core.logits_processors import LogitsProcessorList, make_logits_processors
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import DraftTree
from jakiro.core.verify import verify
from jakiro.decode.completion_text import CompletionText
from jakiro.decode.prefix_cache import Prefix
from jakiro.decode.recorder import LogitRecords
from jakiro.decode.request import GenerationRequest
from jakiro.decode.tree_budget import TreeBudget
from jakiro.drafters.base import Drafter, Method
from jakiro.models.target import TargetModel
from jakiro.system import package_versions
from jakiro.text import TokenText
from jakiro.trace import Header

NO_FIRST_TOKEN = (
    "No token can follow this prompt: the settings forbid every token, or the model's logits are NaN. Forbid "
    "fewer tokens with suppress_tokens, logit_bias or no_repeat_ngram_size."
)


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """Everything that an answer is decoded with, except for its request.

    Attributes:
        method, drafter: how trees are drafted.
        backend: runs the passes.
        budget: chooses the tree sizes of this answer; None for trees of a fixed size.
        device_name: readable name of the device, for traces.
    """

    target: TargetModel
    token_text: TokenText
    method: Method
    drafter: Drafter
    backend: Backend
    budget: TreeBudget | None
    device_name: str

    def largest_tree(self, bounds: TreeConfig) -> TreeConfig:
        """Return the largest tree that an answer drafts within `bounds`."""
        size = max(self.budget.sizes) if self.budget is not None else None
        return bounds.with_size(size) if size is not None and size.levels else bounds


class Prefilled(NamedTuple):
    """A prompt that was read.

    Attributes:
        prompt_ids: (num_prompt_tokens,) int64.
        features: (num_prompt_tokens, feature_size), the target's.
        logits: (1, vocab_size), the target's at the last position.
        prefix: cached prefix that was not read again; None for none.
    """

    prompt_ids: Tensor
    features: Tensor
    logits: Tensor
    prefix: Prefix | None


class FirstToken(NamedTuple):
    """The token after the prompt.

    Attributes:
        token_id: on the host.
        ids: (1,) int64, on the device.
        processed_logits: (1, vocab_size) from which it was chosen, after the logits processors.
    """

    token_id: int
    ids: Tensor
    processed_logits: Tensor


def start_completion(context: DecodeContext, request: GenerationRequest, limit: int) -> CompletionText:
    """Return the text of the completion, with the given beginning.

    Raises:
        ValueError: the prompt has a token without an embedding, or the beginning ends the completion.
    """
    _refuse_unknown_tokens(request.prompt_ids, context.target.vocab_size, context.token_text)
    limit_reason = "length" if limit == request.sampling.max_new_tokens else "context"
    stop_ids = () if request.sampling.ignore_eos else context.target.stop_ids
    completion = CompletionText(context.token_text, stop_ids, request.sampling.stop, limit, limit_reason)
    completion.take(list(request.answer_prefix_ids))
    reason = completion.end_reason
    if reason is not None:
        raise ValueError(f"answer_prefix_ids end the answer ({reason}); leave out the last ones.")
    return completion


def make_processors(context: DecodeContext, request: GenerationRequest) -> LogitsProcessorList | None:
    """Return the logits processors of a request, which have seen its prompt; None if none are set.

    Raises:
        ValueError: the grammar is invalid, or the given beginning does not match it.
    """
    target, grammar = context.target, request.sampling.grammar
    if grammar is not None:
        grammar = GrammarProcessor(grammar, context.token_text, target.vocab_size, target.stop_ids)
    processors = make_logits_processors(request.sampling, target.vocab_size, target.device, grammar, target.stop_ids)
    if processors is not None:
        beginning = request.answer_prefix_ids
        processors.start(request.prompt_ids[: request.answer_start])
        processors.advance(beginning, torch.tensor(beginning, dtype=torch.int64, device=target.device))
    return processors


def prefill(backend: BackendSession, target: TargetModel, request: GenerationRequest) -> Prefilled:
    """Read the prompt, except for a prefix that is cached."""
    prompt_ids = torch.tensor(request.prompt_ids, device=target.device)
    prefix = request.prefixes and request.prefixes.find(target, request.prompt_ids)
    if prefix is None:
        return Prefilled(prompt_ids, *backend.prefill(prompt_ids), None)
    backend.load_cache(prefix.rows)
    features, logits = backend.prefill(prompt_ids[len(prefix.token_ids) :])
    return Prefilled(prompt_ids, torch.cat([prefix.features, features]), logits, prefix)


def choose_first_token(
    prefilled: Prefilled, processors: LogitsProcessorList | None, sampling: SamplingParams
) -> FirstToken:
    """Choose the token after the prompt, by the same rule as in every step.

    The prompt's last token is verified as a root-only tree, so its choice is the first token.

    Args:
        processors: they have seen the prompt; None if the request has none.

    Raises:
        ValueError: no token can follow, because the settings forbid every token or the logits are NaN.
    """
    prompt_ids, logits = prefilled.prompt_ids, prefilled.logits
    tree, position, noise = DraftTree.root_only(prompt_ids[-1:]), len(prompt_ids) - 1, KeyedNoise(sampling.seed)
    mask = torch.ones((1, 1), dtype=torch.bool, device=logits.device)
    if processors is not None:
        logits = processors.adjust(logits, tree, mask)
    noise_rows = None
    if sampling.unfiltered:
        noise_rows = noise.over(torch.arange(logits.shape[-1], device=logits.device)).rows(position + 1, 1)
    verification = verify(tree, mask, logits, sampling, noise, position, noise_rows)
    if bool(verification.needs_full_sort):
        verification = verify(tree, mask, logits, sampling, noise, position, noise_rows, logits.shape[-1])
    if math.isnan(float(verification.margins)):
        raise ValueError(NO_FIRST_TOKEN)
    return FirstToken(int(verification.choices), verification.choices, logits)


def make_header(
    context: DecodeContext,
    request: GenerationRequest,
    first: FirstToken,
    first_text: str,
    logit_records: LogitRecords,
    prefix: Prefix | None,
    prefill_ms: float,
) -> Header:
    """Return everything about a run that is known before its first step."""
    target, token_text, tree, beginning = context.target, context.token_text, request.tree, request.answer_prefix_ids
    profile = context.budget.profile.to_dict() if context.budget is not None else {}
    return Header(
        method=context.method.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        bit_identical=context.backend.is_batch_invariant and target.rounds_alike(tree.nodes),
        messages=request.messages,
        raw_prompt=request.raw_prompt,
        template_arguments=request.template_arguments,
        num_prompt_tokens=request.answer_start,
        target={"name": target.name, "sha256": target.sha256},
        drafter=context.drafter.info,
        proposers=tuple(asdict(proposer) for proposer in context.drafter.proposers),
        device=str(target.device),
        dtype=str(target.dtype).removeprefix("torch."),
        numerics=target.numerics,
        device_profile={"device": context.device_name} | profile,
        versions=package_versions("jakiro", "torch", "transformers"),
        sampling=request.sampling.to_dict(),
        tree=asdict(tree),
        first_token_id=first.token_id,
        first_piece=token_text.piece(first.token_id),
        first_text=first_text,
        prefill_ms=prefill_ms,
        first_logprobs=logit_records.logprobs[0] if logit_records.logprobs else (),
        first_alternatives=logit_records.alternatives,
        prefix_ids=beginning,
        prefix_pieces=tuple(map(token_text.piece, beginning)),
        forced=tuple((place, beginning[place]) for place in request.forced),
        num_reused_tokens=len(prefix.token_ids) if prefix is not None else 0,
        special_tokens={str(token_id): name for token_id, name in token_text.special_tokens.items()},
    )


def _refuse_unknown_tokens(prompt_ids: Sequence[int], vocab_size: int, token_text: TokenText) -> None:
    """Raise ValueError if the prompt has a token for which the model has no embedding."""
    unknown = next((token_id for token_id in prompt_ids if token_id >= vocab_size), None)
    if unknown is not None:
        name = token_text.piece(unknown).decode(errors="replace")
        raise ValueError(
            f"Your prompt contains “{name}”, token {unknown:,} of the tokenizer; this model has {vocab_size:,} tokens. "
            "Leave it out, or resize the model's embedding to its tokenizer."
        )
