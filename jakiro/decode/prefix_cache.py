"""Prefix cache: KV rows of earlier answers, reused by prompts with the same beginning, such as a chat's next turn.

A stored prefix never changes: an answer copies the shared rows into its caches and stores a copy of the rows that it
computed. An owner finds only its own prefixes; otherwise a short response time would reveal another owner's text.
"""

import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from jakiro.core.backend import Backend, BackendSession
from jakiro.drafters.base import DraftSession
from jakiro.trace import first_difference

MEGABYTES = 256
# Share of the store for one text; only the beginning of a longer text is stored
MAX_SHARE = 0.8
# Texts of one owner; edited prompts and new chats add texts
MAX_TEXTS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The beginning of a text in the caches of a target and of draft heads.

    Attributes:
        token_ids: the first n tokens of the text.
        rows: (layers, 2, kv_heads, n, head_dim), of the target's cache.
        features: (n, feature_size), the target's.
        head_rows: by head, rows of its cache; row t belongs to token t + 1, so there are at most n - 1.
        owner: owner of the text.
        target: target that computed the rows.
        last_used: time of the last use, in seconds of `time.monotonic`.
    """

    token_ids: Sequence[int]
    rows: Tensor
    features: Tensor
    head_rows: Mapping[object, Tensor]
    owner: Hashable = None
    target: object = None
    last_used: float = 0.0

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (self.rows, self.features, *self.head_rows.values()))

    def first(self, length: int) -> "Prefix":
        """Return the prefix of the first `length` tokens, as views."""
        head_rows = {head: rows[..., : length - 1, :] for head, rows in self.head_rows.items()}
        rows, features = self.rows[..., :length, :], self.features[:length]
        return replace(self, token_ids=self.token_ids[:length], rows=rows, features=features, head_rows=head_rows)


class PrefixStore:
    """Prefixes of all owners within one limit; the least recently used prefix is dropped first.

    The store refers to the targets and heads of its prefixes, which stay in memory until the prefixes are dropped.

    Args:
        max_bytes: limit for all prefixes together; 0 stores nothing.
        max_seconds: a prefix that was not used for so long is dropped.
    """

    def __init__(self, max_bytes: int = MEGABYTES * 2**20, max_seconds: float = math.inf) -> None:
        self.max_bytes, self._max_seconds = max_bytes, max_seconds
        self._lock = threading.Lock()
        # In the order of their last use
        self._prefixes: list[Prefix] = []
        self._parts: weakref.WeakSet[OwnPrefixes] = weakref.WeakSet()

    def of(self, owner: Hashable = None) -> "OwnPrefixes":
        """Return one owner's part of the store, the argument `prefixes` of `JakiroGenerator.stream`."""
        part = OwnPrefixes(self, owner)
        with self._lock:
            self._parts.add(part)
            oldest = time.monotonic() - self._max_seconds
            self._prefixes = [prefix for prefix in self._prefixes if prefix.last_used >= oldest]
        return part

    @property
    def num_bytes(self) -> int:
        """Bytes of all prefixes together."""
        with self._lock:
            return sum(prefix.num_bytes for prefix in self._prefixes)

    def __len__(self) -> int:
        return len(self._prefixes)

    def drop(self, owner: Hashable) -> None:
        """Drop all prefixes of an owner; the owner's running answers are not stored either."""
        with self._lock:
            for part in self._parts:
                part.dropped = part.dropped or part.owner == owner
            self._prefixes = [prefix for prefix in self._prefixes if prefix.owner != owner]

    def clear(self) -> None:
        """Drop all prefixes, for instance before another model is loaded."""
        with self._lock:
            self._prefixes = []

    def _of(self, owner: Hashable, target: object) -> list[Prefix]:
        return [prefix for prefix in self._prefixes if prefix.owner == owner and prefix.target is target]

    def _trim(self, owner: Hashable) -> None:
        for surplus in [prefix for prefix in self._prefixes if prefix.owner == owner][:-MAX_TEXTS]:
            self._prefixes.remove(surplus)
        total = sum(prefix.num_bytes for prefix in self._prefixes)
        while total > self.max_bytes:
            total -= self._prefixes.pop(0).num_bytes


@dataclass(slots=True, weakref_slot=True, eq=False)
class OwnPrefixes:
    """One owner's part of a store, from `PrefixStore.of`. Nothing is added to a part that was dropped."""

    store: PrefixStore
    owner: Hashable
    dropped: bool = False

    def find(self, target: object, prompt_ids: Sequence[int]) -> Prefix | None:
        """Return the longest stored beginning of a prompt, without its last token; None if nothing is stored.

        The last token is always computed again, because the logits after it are required. The rows of a head may come
        from another stored text: the one for which this head has the most rows.
        """
        with self.store._lock:
            stored = self.store._of(self.owner, target)
            lengths = [_num_common(prefix.token_ids, prompt_ids[:-1]) for prefix in stored]
            if not any(lengths):
                return None
            length, best = max(zip(lengths, stored, strict=True), key=lambda pair: pair[0])
            self.store._prefixes.remove(best)
            self.store._prefixes.append(replace(best, last_used=time.monotonic()))
            parts = [prefix.first(common) for common, prefix in zip(lengths, stored, strict=True) if common]
            shared = best.first(length)
            return replace(shared, head_rows=reduce(_longest, (part.head_rows for part in parts), shared.head_rows))

    def add(
        self,
        target: object,
        token_ids: Sequence[int],
        copy_rows: Callable[[], tuple[Tensor, Tensor]],
        head_rows: Mapping[object, Tensor],
    ) -> None:
        """Store the rows of a text, in place of its stored beginnings; see `Prefix`.

        Args:
            copy_rows: returns rows and features of exactly these tokens; not called if a longer text contains them.
        """
        with self.store._lock:
            if self.dropped:
                return
            stored = self.store._of(self.owner, target)
            longer = next((prefix for prefix in stored if _starts_with(prefix.token_ids, token_ids)), None)
            replaced = (
                [longer] if longer else [prefix for prefix in stored if _starts_with(token_ids, prefix.token_ids)]
            )
            prefix = longer or Prefix(tuple(token_ids), *copy_rows(), {}, self.owner, target)
            head_rows = reduce(_longest, (old.head_rows for old in replaced), head_rows)
            for old in replaced:
                self.store._prefixes.remove(old)
            self.store._prefixes.append(replace(prefix, head_rows=head_rows, last_used=time.monotonic()))
            self.store._trim(self.owner)


class GrowingPrefix:
    """Tokens and features of a running answer, to be stored with its cache rows for later prompts.

    They include committed tokens after the end of the completion.

    Args:
        backend: its `max_reusable_tokens` bounds the prefix.
        token_ids: prompt and first token.
        features: (num_prompt_tokens, feature_size), the target's.
    """

    def __init__(self, prefixes: OwnPrefixes, backend: Backend, token_ids: Sequence[int], features: Tensor) -> None:
        self.prefixes, self.backend = prefixes, backend
        self.token_ids, self._features = list(token_ids), [features]

    def add(self, token_ids: Sequence[int], features: Tensor) -> None:
        """Add committed tokens and the (n, feature_size) features one position before each."""
        self.token_ids += token_ids
        self._features.append(features)

    def keep(self, session: BackendSession, drafting: DraftSession) -> None:
        """Store the reusable rows; the last token is not in the caches yet."""
        head_rows = drafting.head_rows()
        first_rows = (
            session.export_cache(1),
            self._features[0][:1],
            *(rows[..., :1, :] for rows in head_rows.values()),
        )
        max_length = int(MAX_SHARE * self.prefixes.store.max_bytes) // sum(rows.nbytes for rows in first_rows)
        length = min(len(self.token_ids) - 1, max_length, self.backend.max_reusable_tokens)
        if length:
            self.prefixes.add(
                self.backend.target,
                self.token_ids[:length],
                lambda: (session.export_cache(length), torch.cat(self._features)[:length].clone()),
                {head: rows[..., :length, :].contiguous() for head, rows in head_rows.items()},
            )


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common beginning of two texts."""
    different = first_difference(first, second)
    return len(first) if different is None else different


def _starts_with(text: Sequence[int], beginning: Sequence[int]) -> bool:
    return _num_common(text, beginning) == len(beginning)


def _longest(first: Mapping[object, Tensor], second: Mapping[object, Tensor]) -> dict[object, Tensor]:
    """Return for each head the longer rows."""
    longer = {
        head: rows for head, rows in second.items() if head not in first or first[head].shape[-2] < rows.shape[-2]
    }
    return {**first, **longer}
