"""Drafters: anything that proposes a tree. The head's drafter keeps its cache level with the target's.

Weights live in the `Drafter`; caches and pending features in the `DraftSession`, which one call makes and drops.
Acceptance never looks at the draft's probabilities, so any drafter is lossless.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.sampling import KeyedNoise, NoiseRows
from jakiro.core.tree import DraftTree
from jakiro.drafting.growing import TreeGrower
from jakiro.drafting.merged import Chain
from jakiro.heads.jakiro import HeadOutput, JakiroHead
from jakiro.heads.layers import HeadCache


class DraftSession(Protocol):
    """One call's drafting state; `buckets` are the tree sizes whose promise a proposed tree is to report."""

    buckets: tuple[int, ...]

    def extend(self, committed_ids: Tensor, features: Tensor) -> None:
        """Takes newly committed tokens, (n,) int64, and the target's features one position before each, (n, H)."""

    def propose(self, tree_config: TreeConfig, chain: Chain | None = None) -> DraftTree:
        """A tree whose root is the last committed token, the context expert's chain merged in where there is one."""


class Drafter(Protocol):
    """Something that can start drafting for a prompt."""

    def start(
        self, ids: Tensor, features: Tensor, sampling: SamplingParams, noise: KeyedNoise | NoiseRows
    ) -> DraftSession:
        """`ids` are (n + 1,), prompt and first token; `features` (n, H), the prompt's; `noise` is the target's own."""


@dataclass(frozen=True, slots=True)
class HeadDrafter:
    """Drafts with a head that is bound to its target."""

    head: JakiroHead

    def start(
        self, ids: Tensor, features: Tensor, sampling: SamplingParams, noise: KeyedNoise | NoiseRows
    ) -> "HeadSession":
        session = HeadSession(self.head, sampling, noise, ids.shape[0] + sampling.max_new_tokens)
        session.extend(ids[1:], features)
        return session


class HeadSession:
    """Drafting for one answer: the head's cache, the features it has not read yet, the noise it ranks with.

    Args:
        capacity: rows the cache starts with; it grows where a wide tree needs more.
    """

    def __init__(
        self, head: JakiroHead, sampling: SamplingParams, noise: KeyedNoise | NoiseRows, capacity: int
    ) -> None:
        self.head, self.sampling = head, sampling
        self.device, self.dtype = head.output_weight.device, head.output_weight.dtype
        self.cache = HeadCache(head.config, capacity, self.device, self.dtype)
        self.noise_rows = noise.over(head.draft_token_ids)
        self.calibration = dict(head.config.calibration)
        self.buckets: tuple[int, ...] = ()
        self._places_of: tuple[int, ...] = ()
        self._places: Tensor | None = None
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._root: HeadOutput | None = None
        self._root_token: Tensor | None = None

    def extend(self, committed_ids: Tensor, features: Tensor) -> None:
        self._pending.append((committed_ids.to(self.device), features.to(device=self.device, dtype=self.dtype)))

    @torch.inference_mode()
    def catch_up(self) -> None:
        """Reads what is pending in one pass; then the cache holds as many rows as the root's position."""
        if not self._pending:
            return
        token_ids = torch.cat([ids for ids, _ in self._pending])
        features = torch.cat([rows for _, rows in self._pending])
        self._pending = []
        start, count = self.cache.length, token_ids.shape[0]
        self._reserve(count)
        positions = torch.arange(start, start + count, device=self.device)
        mask = self.cache.visible_in_turn(count) if start > 0 else None
        embeddings = self.head.embed(token_ids)
        output = self.head(embeddings[None], features[None], positions[None], mask, self.cache)
        self._root = _last_row(output)
        self._root_token = token_ids[-1:]

    @torch.inference_mode()
    def propose(self, tree_config: TreeConfig, chain: Chain | None = None) -> DraftTree:
        """Grows a tree; afterwards the cache holds the committed rows again."""
        self.catch_up()
        committed = self.cache.length
        self._reserve(tree_config.depth * tree_config.width)
        grower = TreeGrower(
            self.head,
            self.cache,
            self._root,
            self._root_token,
            self.sampling,
            tree_config,
            self.calibration,
            self.noise_rows,
            self._last_places(),
            chain,
        )
        tree = grower.grow()
        self.cache.cut(committed)
        return tree

    def _last_places(self) -> Tensor | None:
        """Where the best candidates of each tree size end, made once per set of sizes."""
        if not self.buckets:
            return None
        if self._places_of != self.buckets:
            self._places_of = self.buckets
            self._places = torch.tensor([nodes - 2 for nodes in self.buckets], device=self.device)
        return self._places

    def _reserve(self, rows: int) -> None:
        """Makes room for `rows` more rows."""
        needed = self.cache.length + rows
        if needed > self.cache.keys.shape[2]:
            larger = HeadCache(self.head.config, 2 * needed, self.device, self.dtype)
            if self.cache.length:
                larger.append(self.cache.keys[:, :, : self.cache.length], self.cache.values[:, :, : self.cache.length])
            self.cache = larger


def _last_row(output: HeadOutput) -> HeadOutput:
    """The output at the last row only, as a pass over one row would give it."""
    return HeadOutput(*(None if part is None else part[..., -1:, :] for part in output))
