"""Logits processors of one request, applied at every node of a tree with that node's own prefix.

The verifier takes the target's own choice after every node. A processor that changes a node's logits by that node's
path and by nothing else therefore keeps drafted text equal to plain decoding's. Biases and penalties are computed on
the device (`PenaltyState`); a `LogitsProcessor` looks at token ids on the host and sends a mask to the device.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from jakiro.config import SamplingParams, require
from jakiro.core.tree import DraftTree
from jakiro.ops.device import reads_are_free

SUPPRESSED, REPEATED, TOO_SHORT = "suppress_tokens", "no_repeat_ngram_size", "min_new_tokens"
# Added to a draft's log probabilities; finite, because 0 · −inf is NaN where a calibration weight is 0
FORBIDDEN = -1e4


@dataclass(frozen=True, slots=True)
class PenaltyState:
    """State of biases and penalties, in buffers at fixed addresses so that captured passes can read it.

    Attributes:
        bias: (vocab_size,) float32, −inf for suppressed tokens.
        seen: (vocab_size,) bool, True for tokens of the prompt and the completion.
        counts: (vocab_size,) float32, occurrences in the completion.
        repetition, presence, frequency: () float32.
    """

    bias: Tensor
    seen: Tensor
    counts: Tensor
    repetition: Tensor
    presence: Tensor
    frequency: Tensor

    @classmethod
    def empty(cls, vocab_size: int, device: torch.device) -> "PenaltyState":
        """Return a state without biases, tokens and penalties."""
        bias, counts = torch.zeros((2, vocab_size), device=device).unbind()
        seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        return cls(bias, seen, counts, *torch.ones(3, device=device).unbind())

    @property
    def buffers(self) -> list[Tensor]:
        """All tensors of the state."""
        return [self.bias, self.seen, self.counts, self.repetition, self.presence, self.frequency]

    def begin(self, sampling: SamplingParams, prompt_ids: Tensor) -> None:
        """Reset the state to the beginning of a completion."""
        self.bias.zero_()
        biases = dict(sampling.logit_bias) | dict.fromkeys(sampling.suppress_tokens, -torch.inf)
        token_ids = torch.tensor(list(biases), dtype=torch.int64, device=self.bias.device)
        self.bias.index_copy_(0, token_ids, torch.tensor(list(biases.values()), device=self.bias.device))
        self.seen.zero_().index_fill_(0, prompt_ids, True)
        self.counts.zero_()
        for name in ("repetition", "presence", "frequency"):
            getattr(self, name).fill_(getattr(sampling, f"{name}_penalty"))

    def add(self, token_ids: Tensor) -> None:
        """Count committed tokens, (n,) int64."""
        self.seen.index_fill_(0, token_ids, True)
        self.counts.index_add_(0, token_ids, torch.ones_like(token_ids, dtype=torch.float32))

    def adjust(self, logits: Tensor, token_ids: Tensor, path: Tensor, columns: Tensor | None = None) -> Tensor:
        """Return logits with biases, then the repetition penalty, then the frequency and presence penalties.

        Args:
            logits: (rows, vocab_size).
            token_ids: (nodes,) int64, of a tree.
            path: (rows, nodes) float32, 1 where a node is on the row's path and not committed; see `drafted_path`.
            columns: (n,) int64, ascending token ids; all tokens seen so far are among them. None computes all columns.
        """
        logits = logits.float() + self.bias
        scores, seen, counts, places = logits, self.seen, self.counts, token_ids
        if columns is not None:
            scores, seen, counts = logits.index_select(1, columns), self.seen[columns], self.counts[columns]
            places = torch.searchsorted(columns, token_ids)
        on_path = torch.zeros_like(scores).index_add_(1, places, path)
        repeated = torch.where(scores < 0, scores * self.repetition, scores / self.repetition)
        scores = torch.where(seen | (on_path > 0), repeated, scores)
        counts = counts + on_path
        scores = scores - self.frequency * counts - self.presence * (counts > 0)
        return scores if columns is None else logits.index_copy_(1, columns, scores)


class LogitsProcessor:
    """A logits processor that needs the token ids on the host.

    Attributes:
        name: Name of its setting, as recorded in traces.
    """

    name: str

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Begin a completion."""

    def advance(self, committed_ids: Sequence[int]) -> None:
        """Append committed tokens to the prefix."""

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        """Clear the bits of tokens that must not follow each node.

        Args:
            token_ids, parents: of a tree whose root is committed; parents come before their children.
            allowed: (nodes, words) uint32, one bit per token.
        """
        raise NotImplementedError


class NoRepeatNGramProcessor(LogitsProcessor):
    """Forbids every token that would repeat an n-gram of prompt and completion, as transformers' processor does.

    Args:
        size: n, 1 or more.
    """

    name = REPEATED

    def __init__(self, size: int) -> None:
        self.size = size
        self._ids: list[int] = []
        # Tokens that have followed each (n − 1)-gram
        self._followers: dict[tuple[int, ...], list[int]] = {}

    def start(self, prompt_ids: Sequence[int]) -> None:
        self.advance(prompt_ids)

    def advance(self, committed_ids: Sequence[int]) -> None:
        for token_id in committed_ids:
            if len(self._ids) >= self.size - 1:
                self._followers.setdefault(self._suffix(self._ids), []).append(token_id)
            self._ids.append(token_id)

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        suffixes: list[tuple[int, ...]] = [self._suffix(self._ids)]
        # (n − 1)-grams and their followers on each node's own path
        drafted: list[list[tuple[tuple[int, ...], int]]] = [[]]
        for node in range(1, len(token_ids)):
            before, token_id = suffixes[parents[node]], token_ids[node]
            ngram = [(before, token_id)] if len(before) == self.size - 1 else []
            drafted.append(drafted[parents[node]] + ngram)
            suffixes.append(self._suffix([*before, token_id]))
        for node, suffix in enumerate(suffixes):
            for token_id in self._followers.get(suffix, ()):
                forbid(allowed[node], token_id)
            for before, token_id in drafted[node]:
                if before == suffix:
                    forbid(allowed[node], token_id)

    def _suffix(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Return the last n − 1 tokens, or all of them if there are fewer."""
        return tuple(ids[max(len(ids) - self.size + 1, 0) :])


class MinNewTokensProcessor(LogitsProcessor):
    """Forbids stop tokens until a completion has `min_new_tokens` tokens, as transformers' processor does.

    Args:
        min_new_tokens: Number of tokens, the stop token included.
        stop_ids: Tokens that end a completion.
    """

    name = TOO_SHORT

    def __init__(self, min_new_tokens: int, stop_ids: Collection[int]) -> None:
        self.min_new_tokens, self.stop_ids = min_new_tokens, sorted(stop_ids)
        self._num_tokens = 0

    def advance(self, committed_ids: Sequence[int]) -> None:
        self._num_tokens += len(committed_ids)

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        depths = [0] * len(token_ids)
        for node in range(len(token_ids)):
            depths[node] = depths[parents[node]] + 1 if node else 0
            # The token after this node is number num_tokens + depth + 1 of the completion
            if self._num_tokens + depths[node] + 1 < self.min_new_tokens:
                for token_id in self.stop_ids:
                    forbid(allowed[node], token_id)


class SuppressTokensProcessor(LogitsProcessor):
    """Forbids some tokens; used with a grammar, which may have to override it."""

    name = SUPPRESSED

    def __init__(self, token_ids: Sequence[int]) -> None:
        self.token_ids = token_ids

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        for row in allowed:
            for token_id in self.token_ids:
                forbid(row, token_id)


def forbid(allowed: np.ndarray, token_id: int) -> None:
    """Clear the bit of a token in a row of bits."""
    allowed[token_id >> 5] &= ~np.uint32(1 << (token_id & 31))


def allows(allowed: np.ndarray, token_id: int) -> bool:
    """Return whether the bit of a token is set in a row of bits."""
    return bool(int(allowed[token_id >> 5]) >> (token_id & 31) & 1)


class LogitsProcessorList:
    """All logits processors of one request; created by `make_logits_processors`.

    Args:
        processors: processors that need the token ids on the host, in the order of application.

    Attributes:
        penalties: State of biases and penalties, or None if none are set.
        steers_drafts: Whether candidates are accepted more often if they are ranked with `draft_bias`.
    """

    def __init__(
        self,
        sampling: SamplingParams,
        vocab_size: int,
        device: torch.device,
        processors: Sequence[LogitsProcessor] = (),
    ) -> None:
        self.sampling, self.vocab_size, self.processors = sampling, vocab_size, tuple(processors)
        with torch.inference_mode():
            self.penalties = PenaltyState.empty(vocab_size, device) if has_penalties(sampling) else None
            self._zeros = torch.zeros(vocab_size, device=device)
        self.steers_drafts = bool(processors or sampling.logit_bias or sampling.suppress_tokens)
        self._forbidden_by: list[str | None] | None = None

    @torch.inference_mode()
    def move_to(self, penalties: PenaltyState) -> None:
        """Copy the state of the penalties into these buffers, which captured passes read, and use them from now on."""
        if self.penalties is not None:
            for buffer, current in zip(penalties.buffers, self.penalties.buffers, strict=True):
                buffer.copy_(current)
            self.penalties = penalties

    @torch.inference_mode()
    def start(self, prompt_ids: Sequence[int]) -> None:
        """Begin the completion of a prompt."""
        for processor in self.processors:
            processor.start(prompt_ids)
        if self.penalties is not None:
            self.penalties.begin(self.sampling, torch.tensor(prompt_ids, device=self.penalties.bias.device))

    @torch.inference_mode()
    def adjust(self, logits: Tensor, tree: DraftTree, mask: Tensor) -> Tensor:
        """Return the logits from which the target's tokens are chosen; the input stays unchanged.

        Args:
            logits: (rows, vocab_size), one row per node of the tree, possibly followed by padding rows.
            tree, mask: see `jakiro.core.verify.verify`.
        """
        if self.penalties is not None:
            logits = self._penalise(logits, tree, mask)
        if not self.processors:
            return logits
        token_ids, parents = torch.stack([tree.token_ids, tree.parents]).tolist()
        allowed, self._forbidden_by = self._allowed_after(token_ids, parents)
        logits = logits.float().clone()
        logits[: len(token_ids)].masked_fill_(_unpack_bits(allowed, logits).logical_not_(), -torch.inf)
        return logits

    @torch.inference_mode()
    def draft_bias(self) -> Tensor:
        """Return the sum of biases and masks of the root's logits, (vocab_size,) float32, at least `FORBIDDEN`.

        Penalties are left out: candidates that were ranked with them were accepted no more often.
        """
        bias = self._zeros if self.penalties is None else self.penalties.bias
        if self.processors:
            allowed = _unpack_bits(self._allowed_after([-1], [-1])[0], bias)[0]
            bias = bias.masked_fill(allowed.logical_not_(), FORBIDDEN)
        return bias.clamp(min=FORBIDDEN)

    def _penalise(self, logits: Tensor, tree: DraftTree, mask: Tensor) -> Tensor:
        columns = None
        if reads_are_free(logits.device):
            columns = torch.cat([self.penalties.seen.nonzero()[:, 0], tree.token_ids]).unique()
        return self.penalties.adjust(logits, tree.token_ids, drafted_path(mask), columns)

    def _allowed_after(self, token_ids: Sequence[int], parents: Sequence[int]) -> tuple[np.ndarray, list[str | None]]:
        """Return the bits of the tokens that may follow each node, and the setting that forbids the node itself."""
        allowed = np.full((len(token_ids), (self.vocab_size + 31) // 32), 0xFFFFFFFF, dtype=np.uint32)
        forbidden_by: list[str | None] = [None] * len(token_ids)
        for processor in self.processors:
            processor.forbid(token_ids, parents, allowed)
            for node in range(1, len(token_ids)):
                if forbidden_by[node] is None and not allows(allowed[parents[node]], token_ids[node]):
                    forbidden_by[node] = processor.name
        return allowed, forbidden_by

    @torch.inference_mode()
    def advance(self, token_ids: Sequence[int], ids: Tensor) -> None:
        """Append committed tokens: on the host, and as (n,) int64 on the device of the logits."""
        for processor in self.processors:
            processor.advance(token_ids)
        if self.penalties is not None:
            self.penalties.add(ids)

    def forbidden_by(self, token_ids: Sequence[int]) -> list[str | None]:
        """Return for each node of the last adjusted tree the setting that forbids it after its parent, or None."""
        names = self._forbidden_by or [None] * len(token_ids)
        suppressed = set(self.sampling.suppress_tokens)
        return [
            SUPPRESSED if node and token_id in suppressed else name
            for node, (token_id, name) in enumerate(zip(token_ids, names, strict=True))
        ]


def needs_host_processors(sampling: SamplingParams) -> bool:
    """Return whether the token ids of each tree are needed on the host before the target's tokens are chosen."""
    return sampling.no_repeat_ngram_size > 0 or sampling.min_new_tokens > 1 or sampling.grammar is not None


def has_penalties(sampling: SamplingParams) -> bool:
    """Return whether biases or penalties are set."""
    penalties = sampling.repetition_penalty != 1 or sampling.presence_penalty or sampling.frequency_penalty
    return bool(penalties or sampling.logit_bias or sampling.suppress_tokens)


def make_logits_processors(
    sampling: SamplingParams,
    vocab_size: int,
    device: torch.device,
    grammar: LogitsProcessor | None,
    stop_ids: Collection[int] = (),
) -> LogitsProcessorList | None:
    """Return the logits processors of a request, or None if the settings need none.

    Raises:
        ValueError: a setting contains a token id outside the vocabulary.
    """
    for name, token_ids in (
        ("logit_bias", [token_id for token_id, _ in sampling.logit_bias]),
        (SUPPRESSED, sampling.suppress_tokens),
    ):
        largest = max(token_ids, default=-1)
        require(
            largest < vocab_size,
            f"{name} contains token {largest:,}; expected token ids from 0 to {vocab_size - 1:,} for this model.",
        )
    processors: list[LogitsProcessor] = []
    if sampling.no_repeat_ngram_size:
        processors.append(NoRepeatNGramProcessor(sampling.no_repeat_ngram_size))
    if sampling.min_new_tokens > 1 and stop_ids:
        processors.append(MinNewTokensProcessor(sampling.min_new_tokens, stop_ids))
    if grammar is not None:
        if sampling.suppress_tokens:
            processors.append(SuppressTokensProcessor(sampling.suppress_tokens))
        processors.append(grammar)
        sampling = replace(sampling, suppress_tokens=())
    if not processors and not has_penalties(sampling):
        return None
    return LogitsProcessorList(sampling, vocab_size, device, processors)


def drafted_path(mask: Tensor) -> Tensor:
    """Return the nodes on each row's path without the committed root, (rows, nodes) float32.

    Args:
        mask: (rows, nodes) bool ancestor-or-self mask.
    """
    path = mask.float()
    path[:, :1].fill_(0)
    return path


def _unpack_bits(allowed: np.ndarray, logits: Tensor) -> Tensor:
    """Return rows of bits as (rows, vocab_size) bool on the device of the logits; only the bits are transferred."""
    vocab_size = logits.shape[-1]
    if reads_are_free(logits.device):
        bits = np.unpackbits(allowed.view(np.uint8), axis=1, bitorder="little").view(bool)
        return torch.from_numpy(bits)[:, :vocab_size].clone()
    words = torch.from_numpy(allowed.view(np.int32)).to(logits.device)
    bits = words[..., None] >> torch.arange(32, dtype=torch.int32, device=logits.device)
    return bits.bitwise_and_(1).flatten(1)[:, :vocab_size].bool()
