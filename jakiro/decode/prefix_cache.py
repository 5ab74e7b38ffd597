"""Caches of earlier answers, kept for prompts that begin like them: a chat's next turn, a question asked again.

A prefix never changes: an answer copies what it begins with into its caches, and adds a copy of what it computed.
Owners find only their own prefixes, so that no owner's times depend on another's text.
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
# Of the room, for one text; a longer one keeps its beginning
MOST_OF_ROOM = 0.8
# Texts of one owner; edited questions and new chats begin further ones
MOST_TEXTS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The beginning of a text, as it lies in the caches of a target and of draft heads.

    Attributes:
        token_ids: the text's first n tokens.
        rows: of the target's cache, (layers, 2, kv_heads, n, head_dim).
        features: (n, feature_size), the target's.
        head_rows: by head, of its cache, as `rows`; row t is of token t + 1, so there are at most n - 1.
        owner, target: whose it is, and of which target's cache.
        used: when it was used last, in seconds of `time.monotonic`.
    """

    token_ids: Sequence[int]
    rows: Tensor
    features: Tensor
    head_rows: Mapping[object, Tensor]
    owner: Hashable = None
    target: object = None
    used: float = 0.0

    @property
    def num_bytes(self) -> int:
        return sum(each.nbytes for each in (self.rows, self.features, *self.head_rows.values()))

    def first(self, length: int) -> "Prefix":
        """The same of the first `length` tokens; nothing is copied."""
        head_rows = {head: rows[..., : length - 1, :] for head, rows in self.head_rows.items()}
        rows, features = self.rows[..., :length, :], self.features[:length]
        return replace(self, token_ids=self.token_ids[:length], rows=rows, features=features, head_rows=head_rows)


class PrefixStore:
    """Prefixes of all owners, bounded together; the least recently used are dropped first.

    It keeps the targets and heads of its prefixes alive until these are dropped.

    Args:
        max_bytes: of all prefixes together; 0 stores nothing.
        max_seconds: how long one is kept that is not used: its owner may be gone.
    """

    def __init__(self, max_bytes: int = MEGABYTES * 2**20, max_seconds: float = math.inf) -> None:
        self.max_bytes, self._max_seconds = max_bytes, max_seconds
        self._lock = threading.Lock()
        # Used last comes last
        self._kept: list[Prefix] = []
        self._parts: weakref.WeakSet[OwnPrefixes] = weakref.WeakSet()

    def of(self, owner: Hashable = None) -> "OwnPrefixes":
        """One owner's part, as `JakiroGenerator.stream` takes it."""
        part = OwnPrefixes(self, owner)
        with self._lock:
            self._parts.add(part)
            oldest = time.monotonic() - self._max_seconds
            self._kept = [each for each in self._kept if each.used >= oldest]
        return part

    @property
    def num_bytes(self) -> int:
        """Bytes of all prefixes together."""
        with self._lock:
            return sum(each.num_bytes for each in self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def drop(self, owner: Hashable) -> None:
        """Forgets all of an owner, and keeps nothing of the answers that the owner gets now."""
        with self._lock:
            for part in self._parts:
                part.dropped = part.dropped or part.owner == owner
            self._kept = [each for each in self._kept if each.owner != owner]

    def clear(self) -> None:
        """Forgets everything, for instance before another model is loaded."""
        with self._lock:
            self._kept = []

    def _of(self, owner: Hashable, target: object) -> list[Prefix]:
        return [each for each in self._kept if each.owner == owner and each.target is target]

    def _trim(self, owner: Hashable) -> None:
        for surplus in [each for each in self._kept if each.owner == owner][:-MOST_TEXTS]:
            self._kept.remove(surplus)
        total = sum(each.num_bytes for each in self._kept)
        while total > self.max_bytes:
            total -= self._kept.pop(0).num_bytes


@dataclass(slots=True, weakref_slot=True, eq=False)
class OwnPrefixes:
    """One owner's part of a store; made by `PrefixStore.of`. Once it is dropped nothing is added to it any more."""

    store: PrefixStore
    owner: Hashable
    dropped: bool = False

    def find(self, target: object, prompt: Sequence[int]) -> Prefix | None:
        """What is kept of the longest text that begins like the prompt, without its last token; None for nothing.

        The last token is computed again, because what comes after it is asked for. A head whose cache lacks this text
        may have more of the prompt from another one: its rows are those that reach furthest.
        """
        with self.store._lock:
            kept = self.store._of(self.owner, target)
            lengths = [_num_common(each.token_ids, prompt[:-1]) for each in kept]
            if not any(lengths):
                return None
            length, best = max(zip(lengths, kept, strict=True), key=lambda pair: pair[0])
            self.store._kept.remove(best)
            self.store._kept.append(replace(best, used=time.monotonic()))
            parts = [each.first(common) for common, each in zip(lengths, kept, strict=True) if common]
            found = best.first(length)
            return replace(found, head_rows=reduce(_longest, (part.head_rows for part in parts), found.head_rows))

    def add(
        self,
        target: object,
        token_ids: Sequence[int],
        copied: Callable[[], tuple[Tensor, Tensor]],
        head_rows: Mapping[object, Tensor],
    ) -> None:
        """Keeps what the caches hold of a text, in place of its beginnings; see `Prefix`.

        Args:
            copied: gives rows and features of exactly these tokens; not called where a longer text holds them.
        """
        with self.store._lock:
            if self.dropped:
                return
            kept = self.store._of(self.owner, target)
            longer = next((each for each in kept if _begins(each.token_ids, token_ids)), None)
            replaced = [longer] if longer else [each for each in kept if _begins(token_ids, each.token_ids)]
            prefix = longer or Prefix(tuple(token_ids), *copied(), {}, self.owner, target)
            head_rows = reduce(_longest, (each.head_rows for each in replaced), head_rows)
            for each in replaced:
                self.store._kept.remove(each)
            self.store._kept.append(replace(prefix, head_rows=head_rows, used=time.monotonic()))
            self.store._trim(self.owner)


class GrowingPrefix:
    """Cache rows of one answer as they grow, to be stored for later prompts; includes tokens after a cut at its end.

    Args:
        backend: whose `max_reusable_tokens` bounds the prefix.
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
        room = int(MOST_OF_ROOM * self.prefixes.store.max_bytes) // sum(rows.nbytes for rows in first_rows)
        length = min(len(self.token_ids) - 1, room, self.backend.max_reusable_tokens)
        if length:
            self.prefixes.add(
                self.backend.target,
                self.token_ids[:length],
                lambda: (session.export_cache(length), torch.cat(self._features)[:length].clone()),
                {head: rows[..., :length, :].contiguous() for head, rows in head_rows.items()},
            )


def _num_common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    different = first_difference(left, right)
    return len(left) if different is None else different


def _begins(text: Sequence[int], beginning: Sequence[int]) -> bool:
    return _num_common(text, beginning) == len(beginning)


def _longest(left: Mapping[object, Tensor], right: Mapping[object, Tensor]) -> dict[object, Tensor]:
    """By head, the rows that reach further."""
    further = {head: rows for head, rows in right.items() if head not in left or left[head].shape[-2] < rows.shape[-2]}
    return {**left, **further}
