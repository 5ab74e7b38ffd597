"""The token rule of an answer: what its settings say about a token, seen from the token's own prefix.

The verifier takes the target's own choice after every node of a tree. A rule that changes each node's logits by that
node's own path, and by nothing else, therefore leaves drafted text what plain decoding writes. Penalties and biases
work where the logits lie; what has to look at tokens one by one, `HostRule`, sends a mask.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from jakiro.config import SamplingParams, require
from jakiro.core.tree import DraftTree

SUPPRESSED, REPEATED, TOO_SHORT = "suppress_tokens", "no_repeat_ngram_size", "min_new_tokens"
# Added to a draft's log probabilities: finite, so that a weight of 0 leaves numbers
FORBIDDEN = -1e4


@dataclass(frozen=True, slots=True)
class Counted:
    """What biases and penalties know, at fixed addresses, so that captured passes can read it.

    Attributes:
        bias: (vocab_size,) float32, −inf where a token is suppressed.
        seen: (vocab_size,) bool, tokens of prompt and answer. counts: (vocab_size,) float32, of the answer alone.
        repetition, presence, frequency: () float32.
    """

    bias: Tensor
    seen: Tensor
    counts: Tensor
    repetition: Tensor
    presence: Tensor
    frequency: Tensor

    @classmethod
    def empty(cls, vocab_size: int, device: torch.device) -> "Counted":
        bias, counts = torch.zeros((2, vocab_size), device=device).unbind()
        seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        return cls(bias, seen, counts, *torch.ones(3, device=device).unbind())

    @property
    def buffers(self) -> list[Tensor]:
        return [self.bias, self.seen, self.counts, self.repetition, self.presence, self.frequency]

    def begin(self, sampling: SamplingParams, prompt_ids: Tensor) -> None:
        """Begins an answer."""
        self.bias.zero_()
        biases = dict(sampling.logit_bias) | dict.fromkeys(sampling.suppress_tokens, -torch.inf)
        places = torch.tensor(list(biases), dtype=torch.int64, device=self.bias.device)
        self.bias.index_copy_(0, places, torch.tensor(list(biases.values()), device=self.bias.device))
        self.seen.zero_().index_fill_(0, prompt_ids, True)
        self.counts.zero_()
        for name in ("repetition", "presence", "frequency"):
            getattr(self, name).fill_(getattr(sampling, f"{name}_penalty"))

    def add(self, token_ids: Tensor) -> None:
        """Takes tokens that were committed, (n,) int64."""
        self.seen.index_fill_(0, token_ids, True)
        self.counts.index_add_(0, token_ids, torch.ones_like(token_ids, dtype=torch.float32))

    def adjusted(self, logits: Tensor, token_ids: Tensor, path: Tensor, columns: Tensor | None = None) -> Tensor:
        """Logits with bias, then the repetition penalty, then those of frequency and presence.

        Args:
            logits: (rows, vocab_size).
            token_ids: (nodes,) int64, of a tree; path: (rows, nodes) float32, 1 where a row's path has a node that is
                not committed.
            columns: (n,) int64, in order: ids outside which nothing has come before, to look at them alone.
        """
        logits = logits.float() + self.bias
        at_columns, seen, counts, places = logits, self.seen, self.counts, token_ids
        if columns is not None:
            at_columns, seen, counts = logits.index_select(1, columns), self.seen[columns], self.counts[columns]
            places = torch.searchsorted(columns, token_ids)
        on_path = torch.zeros_like(at_columns).index_add_(1, places, path)
        penalised = torch.where(at_columns < 0, at_columns * self.repetition, at_columns / self.repetition)
        found = torch.where(seen | (on_path > 0), penalised, at_columns)
        counts = counts + on_path
        found = found - self.frequency * counts - self.presence * (counts > 0)
        return found if columns is None else logits.index_copy_(1, columns, found)


class HostRule:
    """What has to look at each prefix on the host.

    Attributes:
        name: of the setting that it obeys, which traces name.
    """

    name: str

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Begins an answer."""

    def advance(self, committed_ids: Sequence[int]) -> None:
        """Takes tokens that were committed."""

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        """Takes out of each node's row what may not follow it.

        Args:
            token_ids, parents: of a tree whose root is committed; parents come before their children.
            allowed: (nodes, words) uint32, a bit a token, all set before.
        """
        raise NotImplementedError


class UnrepeatedRuns(HostRule):
    """No run of n tokens comes twice in prompt and answer."""

    name = REPEATED

    def __init__(self, size: int) -> None:
        self.size = size
        self._ids: list[int] = []
        # What has followed each run of n − 1 tokens
        self._after: dict[tuple[int, ...], list[int]] = {}

    def start(self, prompt_ids: Sequence[int]) -> None:
        self.advance(prompt_ids)

    def advance(self, committed_ids: Sequence[int]) -> None:
        for token_id in committed_ids:
            if len(self._ids) >= self.size - 1:
                self._after.setdefault(self._end_of(self._ids), []).append(token_id)
            self._ids.append(token_id)

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        own = self._ids[len(self._ids) - self.size + 1 :] if self.size > 1 else []
        for node in range(len(token_ids)):
            path, above = [], node
            while above > 0:
                path.append(token_ids[above])
                above = parents[above]
            # Runs that end on the path are not known yet
            recent = [*own, *reversed(path)]
            runs = [tuple(recent[end - self.size : end]) for end in range(self.size, len(recent) + 1)]
            end = self._end_of(recent)
            for follower in (*self._after.get(end, ()), *(run[-1] for run in runs if run[:-1] == end)):
                forbid(allowed[node], follower)

    def _end_of(self, ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(ids[len(ids) - self.size + 1 :])


class MinNewTokensProcessor(HostRule):
    """Forbids end tokens until an answer has `min_new_tokens` tokens, as transformers' processor of the same name.

    Args:
        min_new_tokens: number of tokens.
        stop_ids: tokens that end an answer.
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
            # The token after this node is number num_tokens + depth + 1 of the answer
            if self._num_tokens + depths[node] + 1 < self.min_new_tokens:
                for token_id in self.stop_ids:
                    forbid(allowed[node], token_id)


class Suppressed(HostRule):
    """Tokens that never come, where the host sends a mask anyway and a grammar may have to go before them."""

    name = SUPPRESSED

    def __init__(self, token_ids: Sequence[int]) -> None:
        self.token_ids = token_ids

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        for row in allowed:
            for token_id in self.token_ids:
                forbid(row, token_id)


def forbid(allowed: np.ndarray, token_id: int) -> None:
    """Takes a token out of a row of bits."""
    allowed[token_id >> 5] &= ~np.uint32(1 << (token_id & 31))


def allows(allowed: np.ndarray, token_id: int) -> bool:
    """Whether a row of bits has a token."""
    return bool(int(allowed[token_id >> 5]) >> (token_id & 31) & 1)


class TokenRule:
    """What the settings of one answer say about its tokens; `rule_for` makes one, where they say anything.

    Args:
        host_rules: what has to look at each prefix on the host.

    Attributes:
        counted: what biases and penalties know; None where there are none.
        steers: whether drafts are better ranked with `added`.
    """

    def __init__(
        self, sampling: SamplingParams, vocab_size: int, device: torch.device, host_rules: Sequence[HostRule] = ()
    ) -> None:
        self.sampling, self.vocab_size, self.host_rules = sampling, vocab_size, tuple(host_rules)
        with torch.inference_mode():
            self.counted = Counted.empty(vocab_size, device) if counts(sampling) else None
            self._nothing = torch.zeros(vocab_size, device=device)
        self.steers = bool(host_rules or sampling.logit_bias or sampling.suppress_tokens)
        self._forbidden: list[str | None] | None = None

    @torch.inference_mode()
    def move_to(self, counted: Counted) -> None:
        """Goes on in these buffers, which captured passes read."""
        if self.counted is not None:
            for buffer, own in zip(counted.buffers, self.counted.buffers, strict=True):
                buffer.copy_(own)
            self.counted = counted

    @torch.inference_mode()
    def start(self, prompt_ids: Sequence[int]) -> None:
        """Begins the answer to a prompt."""
        for rule in self.host_rules:
            rule.start(prompt_ids)
        if self.counted is not None:
            self.counted.begin(self.sampling, torch.tensor(prompt_ids, device=self.counted.bias.device))

    @torch.inference_mode()
    def adjust(self, logits: Tensor, tree: DraftTree, mask: Tensor) -> Tensor:
        """The logits that the target's choices are made of; those given stay as they are.

        Args:
            logits: (rows, vocab_size), a row for each node of the tree and perhaps for pads after them.
            tree, mask: see `jakiro.core.verify.verify`.
        """
        if self.counted is not None:
            logits = self._counted(logits, tree, mask)
        if not self.host_rules:
            return logits
        token_ids, parents = torch.stack([tree.token_ids, tree.parents]).tolist()
        allowed, self._forbidden = self._looked_at(token_ids, parents)
        logits = logits.float().clone()
        logits[: len(token_ids)].masked_fill_(_unpacked(allowed, logits).logical_not_(), -torch.inf)
        return logits

    @torch.inference_mode()
    def added(self) -> Tensor:
        """(vocab_size,) float32: what biases and the host's rules add to the root's logits, `FORBIDDEN` at least.

        Penalties are left out: drafts that were ranked with them were accepted no more often.
        """
        found = self._nothing if self.counted is None else self.counted.bias
        if self.host_rules:
            allowed = _unpacked(self._looked_at([-1], [-1])[0], found)[0]
            found = found.masked_fill(allowed.logical_not_(), FORBIDDEN)
        return found.clamp(min=FORBIDDEN)

    def _counted(self, logits: Tensor, tree: DraftTree, mask: Tensor) -> Tensor:
        columns = None
        if logits.device.type == "cpu":
            columns = torch.cat([self.counted.seen.nonzero()[:, 0], tree.token_ids]).unique()
        return self.counted.adjusted(logits, tree.token_ids, drafted_path(mask), columns)

    def _looked_at(self, token_ids: Sequence[int], parents: Sequence[int]) -> tuple[np.ndarray, list[str | None]]:
        """What may follow each node of a tree, see `HostRule.forbid`, and by which rule a node itself may not come."""
        allowed = np.full((len(token_ids), (self.vocab_size + 31) // 32), 0xFFFFFFFF, dtype=np.uint32)
        forbidden: list[str | None] = [None] * len(token_ids)
        for rule in self.host_rules:
            rule.forbid(token_ids, parents, allowed)
            for node in range(1, len(token_ids)):
                if forbidden[node] is None and not allows(allowed[parents[node]], token_ids[node]):
                    forbidden[node] = rule.name
        return allowed, forbidden

    @torch.inference_mode()
    def advance(self, token_ids: Sequence[int], ids: Tensor) -> None:
        """Takes the committed tokens, on the host and (n,) int64 where the logits lie."""
        for rule in self.host_rules:
            rule.advance(token_ids)
        if self.counted is not None:
            self.counted.add(ids)

    def forbidden(self, token_ids: Sequence[int]) -> list[str | None]:
        """Of each node of the tree that was looked at last: the setting that forbids it after its parent, or None."""
        found = self._forbidden or [None] * len(token_ids)
        suppressed = set(self.sampling.suppress_tokens)
        return [
            SUPPRESSED if node and token_id in suppressed else by
            for node, (token_id, by) in enumerate(zip(token_ids, found, strict=True))
        ]


def looks_on_host(sampling: SamplingParams) -> bool:
    """Whether the host has to see each tree before the target's choices."""
    return sampling.no_repeat_ngram_size > 0 or sampling.min_new_tokens > 1 or sampling.grammar is not None


def counts(sampling: SamplingParams) -> bool:
    """Whether biases or penalties are set."""
    penalties = sampling.repetition_penalty != 1 or sampling.presence_penalty or sampling.frequency_penalty
    return bool(penalties or sampling.logit_bias or sampling.suppress_tokens)


def rule_for(
    sampling: SamplingParams,
    vocab_size: int,
    device: torch.device,
    grammar: HostRule | None,
    stop_ids: Collection[int] = (),
) -> TokenRule | None:
    """The rule of an answer; None where nothing is set, so that nothing is computed.

    Raises:
        ValueError: a token is named that the target does not know.
    """
    for name, token_ids in (
        ("logit_bias", [token_id for token_id, _ in sampling.logit_bias]),
        (SUPPRESSED, sampling.suppress_tokens),
    ):
        most = max(token_ids, default=-1)
        require(most < vocab_size, f"{name} names token {most:,}; this model knows {vocab_size:,} tokens, from 0 on.")
    host_rules = [UnrepeatedRuns(sampling.no_repeat_ngram_size)] if sampling.no_repeat_ngram_size else []
    if sampling.min_new_tokens > 1 and stop_ids:
        host_rules.append(MinNewTokensProcessor(sampling.min_new_tokens, stop_ids))
    if grammar is not None:
        host_rules += [Suppressed(sampling.suppress_tokens), grammar] if sampling.suppress_tokens else [grammar]
        sampling = replace(sampling, suppress_tokens=())
    return TokenRule(sampling, vocab_size, device, host_rules) if host_rules or counts(sampling) else None


def drafted_path(mask: Tensor) -> Tensor:
    """(rows, nodes) float32 from the ancestor-or-self mask: what each row's path has beside the committed root."""
    path = mask.float()
    path[:, :1].fill_(0)
    return path


def _unpacked(allowed: np.ndarray, logits: Tensor) -> Tensor:
    """(rows, vocab_size) bool of rows of bits, where the logits lie; what travels there is the bits."""
    vocab_size = logits.shape[-1]
    if logits.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(allowed.view(np.uint8), axis=1, bitorder="little").view(bool))[
            :, :vocab_size
        ].clone()
    words = torch.from_numpy(allowed.view(np.int32)).to(logits.device)
    bits = words[..., None] >> torch.arange(32, dtype=torch.int32, device=logits.device)
    return bits.bitwise_and_(1).flatten(1)[:, :vocab_size].bool()
