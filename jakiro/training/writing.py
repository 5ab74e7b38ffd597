"""Continuous batching: the target continues many texts at once, and new texts replace finished ones in the batch.

Sampling noise is a function of (seed, position), so a text does not depend on the others in its batch.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import Cache, DynamicLayer

from jakiro.core.noise import KeyedNoise
from jakiro.models.families import output_function
from jakiro.ops.cache import cache_argument

# New texts are read when at least 1/16 of the batch is free, so that one pass reads several
_JOINING_SHARE = 16
# Columns by which the cache grows
_SPARE = 64


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A text to continue.

    Attributes:
        number: identifies the text for the caller.
        ids: token ids to continue, at least one.
        seed: of the noise, together with the absolute position.
        temperature: 0 is greedy.
        max_new_tokens: maximum length of the continuation.
        top_k: sample from this number of tokens; 0 means all.
        overhang: number of tokens to write after the end (a stop id or the limit).
    """

    number: int
    ids: list[int]
    seed: int
    temperature: float
    max_new_tokens: int
    top_k: int = 0
    overhang: int = 0


@dataclass(slots=True)
class _Text:
    request: TextRequest
    written: list[int] = field(default_factory=list)
    end: int | None = None

    def take(self, token: int, stop_ids: Collection[int]) -> None:
        self.written.append(token)
        if self.end is None and (token in stop_ids or len(self.written) == self.request.max_new_tokens):
            self.end = len(self.written)

    @property
    def finished(self) -> bool:
        return self.end is not None and len(self.written) == self.end + self.request.overhang


@torch.inference_mode()
def write_texts(
    model, queue: deque[TextRequest], batch_size: int, stop_ids: Collection[int]
) -> Iterator[tuple[TextRequest, list[int]]]:
    """Yield each text when it ends: its request, and the new ids with stop id and overhang.

    Args:
        model: a transformers causal language model; on a CPU, packed layers are faster, see `pack_linears`.
        queue: consumed from the left; the caller may add requests between two results.
        batch_size: number of texts written at once.
        stop_ids: ids that end a text.
    """
    batch = _Batch(model, stop_ids)
    together = max(batch_size // _JOINING_SHARE, 1)
    while queue or batch.texts:
        joining = []
        if not batch.texts or batch_size - len(batch.texts) >= together:
            joining = [queue.popleft() for _ in range(min(len(queue), batch_size - len(batch.texts)))]
        if joining:
            batch.join(joining)
        else:
            batch.advance()
        for text in batch.leave():
            yield text.request, text.written


class _Layer(DynamicLayer):
    """Keys and values with spare columns, so that a new token copies only its own column."""

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        start, new = self.get_seq_length(), (key_states, value_states)
        end = start + key_states.shape[2]
        if not start or end > self._buffers[0].shape[2]:
            buffers = [functional.pad(states, (0, 0, start, _SPARE)) for states in new]
            for buffer, before in zip(buffers, (self.keys, self.values) if start else (), strict=bool(start)):
                buffer[:, :, :start] = before
            self._buffers, self.is_initialized = buffers, True
        for buffer, states in zip(self._buffers, new, strict=True):
            buffer[:, :, start:end] = states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values


def _cache(pairs: Iterable[tuple[Tensor, Tensor]] = ()) -> Cache:
    """Return a cache with these keys and values of each layer, (texts, kv_heads, columns, head_dim)."""
    cache = Cache(layer_class_to_replicate=_Layer)
    for index, pair in enumerate(pairs):
        cache.update(*pair, index)
    return cache


class _Batch:
    """The texts in progress, padded on the left, with their keys and values."""

    def __init__(self, model, stop_ids: Collection[int]) -> None:
        self.model, self.stop_ids, self.device = model, stop_ids, model.device
        self.output = output_function(model, model.get_input_embeddings().weight.detach())
        self.texts: list[_Text] = []
        self.mask = torch.zeros(0, 0, dtype=torch.int64, device=self.device)
        self.cache = _cache()

    def join(self, requests: list[TextRequest]) -> None:
        """Read the texts of requests and write the first token of each."""
        longest = max(len(request.ids) for request in requests)
        padding = [longest - len(request.ids) for request in requests]
        padded = [[0] * count + request.ids for count, request in zip(padding, requests, strict=True)]
        ids, counts = torch.tensor(padded, device=self.device), torch.tensor(padding, device=self.device)
        mask = (torch.arange(longest, device=self.device) >= counts[:, None]).long()
        cache, texts = _cache(), [_Text(request) for request in requests]
        self._run(texts, ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), cache)
        width = max(longest, self.mask.shape[1])
        self.mask = torch.cat([functional.pad(rows, (width - rows.shape[1], 0)) for rows in (self.mask, mask)])
        self.cache = _stacked(self.cache, cache, width) if self.texts else cache
        self.texts += texts

    def advance(self) -> None:
        """Write one more token of every text."""
        positions = self.mask.sum(-1, keepdim=True)
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.texts), 1)], dim=1)
        ids = torch.tensor([[text.written[-1]] for text in self.texts], device=self.device)
        self._run(self.texts, ids, self.mask, positions, self.cache)

    def leave(self) -> list[_Text]:
        """Remove and return the finished texts, and remove padding that no text requires."""
        finished = [text for text in self.texts if text.finished]
        if not finished:
            return []
        going = [place for place, text in enumerate(self.texts) if not text.finished]
        self.texts = [self.texts[place] for place in going]
        self.mask = self.mask[going]
        if not going:
            self.mask, self.cache = self.mask[:, :0], _cache()
            return finished
        padding = int(self.mask.argmax(-1).min())
        self.mask = self.mask[:, padding:]
        self.cache = _cache(
            (layer.keys[going, :, padding:], layer.values[going, :, padding:]) for layer in self.cache.layers
        )
        return finished

    def _run(self, texts: list[_Text], ids: Tensor, mask: Tensor, positions: Tensor, cache: Cache) -> None:
        base_model = self.model.base_model
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        inputs[cache_argument(type(base_model).forward)] = cache
        features = base_model(**inputs).last_hidden_state
        tokens = _choices(texts, self.output(features[:, -1]).float())
        for text, token in zip(texts, tokens, strict=True):
            text.take(token, self.stop_ids)


def _choices(texts: Sequence[_Text], logits: Tensor) -> list[int]:
    """Return the next token of every text; logits are (texts, vocab_size) float32."""
    tokens = logits.argmax(-1)
    sampled: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        if text.request.temperature > 0:
            sampled.setdefault(text.request.top_k, []).append(place)
    for top_k, places in sampled.items():
        tokens[places] = _sample(logits[places], [texts[place] for place in places], top_k)
    return tokens.tolist()


def _sample(logits: Tensor, texts: Sequence[_Text], top_k: int) -> Tensor:
    """Return (texts,) sampled tokens, each with the noise of its own seed and position.

    The choice is that of `jakiro.core.sampling`, for a batch with different seeds, positions and temperatures.
    """

    def column(values: list, dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=logits.device)[:, None]

    candidates = torch.arange(logits.shape[1], device=logits.device).expand_as(logits)
    if 0 < top_k < logits.shape[1]:
        logits, candidates = logits.topk(top_k)
    seeds = column([text.request.seed for text in texts], torch.int64)
    positions = column([len(text.request.ids) + len(text.written) for text in texts], torch.int64)
    temperatures = column([text.request.temperature for text in texts], torch.float32)
    best = (logits / temperatures + KeyedNoise(seeds).at(positions, candidates)).argmax(-1, keepdim=True)
    return candidates.gather(1, best)[:, 0]


def _stacked(first: Cache, second: Cache, width: int) -> Cache:
    """Return the texts of both caches, padded on the left to `width` columns."""

    def joined(*parts: Tensor) -> Tensor:
        return torch.cat([functional.pad(part, (0, 0, width - part.shape[2], 0)) for part in parts])

    pairs = zip(first.layers, second.layers, strict=True)
    return _cache((joined(ours.keys, theirs.keys), joined(ours.values, theirs.values)) for ours, theirs in pairs)
