"""Drafts that begin with the target's own first layers: one trained layer on top predicts the target's last feature.

The target's layers are frozen and shared, so a head holds its own layer only. It reads a token's embedding and what the
target's layers made of it, and predicts the feature at the same position: a language model of its own, a quarter as
deep. `NestedHead` can leave earlier, after any of `exit_layers`, by a matrix each (S2D, arXiv 2407.01955).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.config import is_ascending
from jakiro.heads.config import need
from jakiro.heads.layer_config import LayerConfig
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput, row_output
from jakiro.models.target import TargetModel
from jakiro.ops.cache import RowCache
from jakiro.ops.linear import Packing, pack_linears
from lab.layers.subset import LayerSubset


@dataclass(frozen=True, kw_only=True)
class ExitConfig(LayerConfig):
    """Of a head on top of the target's first layers.

    Attributes:
        exit_layers: ascending numbers of the target's layers whose outputs are read; the layers up to the last of them
            run as a part of the draft.
    """

    exit_layers: tuple[int, ...]
    kind = "stacked"

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = self.exit_layers
        need(layers and is_ascending(layers, 1), f"exit_layers must be ascending layer numbers from 1 on, not {layers}")
        object.__setattr__(self, "exit_layers", tuple(layers))

    @property
    def feature_size(self) -> int:
        """Of what it learns from: the exits' states beside the target's last one; drafting reads none of them."""
        return (1 + len(self.exit_layers)) * self.hidden_size


class DistilledConfig(ExitConfig):
    """Trained on text that the draft wrote, by the target's judgement of it."""

    kind = "distilled"


class NestedConfig(ExitConfig):
    """Of a head that can leave after each of `exit_layers`."""

    kind = "nested"


class StackedRows:
    """The rows of the target's layers, part by part, and of the head's own layer; of equal length between drafts.

    While a tree grows, parts that an early exit leaves out lack the drafted rows; `keep` makes all equal again.
    """

    def __init__(self, parts: list[RowCache]) -> None:
        self.parts = parts

    @property
    def length(self) -> int:
        return self.parts[0].length

    @property
    def is_empty(self) -> bool:
        return self.parts[0].is_empty

    @property
    def capacity(self) -> int:
        return self.parts[0].capacity

    def visible(self, among: Tensor) -> Tensor:
        """As `RowCache.visible`."""
        return self.parts[0].visible(among)

    def keep(self, base: int) -> None:
        """Keeps the first `base` rows."""
        for part in self.parts:
            part.keep(base)

    def first(self, length: int) -> Tensor:
        """As `RowCache.first`, one part's layers after the other's."""
        return torch.cat([part.first(length) for part in self.parts])

    def load_prefix(self, rows: Tensor) -> None:
        """As `RowCache.load_prefix`."""
        for part, own in zip(self.parts, rows.split([len(part.layers) for part in self.parts]), strict=True):
            part.load_prefix(own)


def scaled(hidden: Tensor) -> Tensor:
    """Rows with a root mean square of one: the residual stream grows with depth."""
    return functional.rms_norm(hidden, hidden.shape[-1:], eps=1e-6)


class ExitHead(LayerHead):
    """One layer on top of the target's first ones; `attach` must be called before drafting, not before training."""

    skipped_tokens = 0
    capturable = False

    def __init__(self, config: ExitConfig) -> None:
        super().__init__(config)
        self._parts: list[LayerSubset] = []

    @property
    def levels(self) -> int:
        return 1

    def attach(self, target: TargetModel) -> None:
        """Takes the target's first layers, cut where they are read.

        Raises:
            ValueError: the target has fewer layers, or they cannot run by themselves.
        """
        ends, count = self.config.exit_layers, target.config.num_hidden_layers
        if ends[-1] > count:
            raise ValueError(f"The draft head stands on {ends[-1]} layers, the target has {count}; take another head.")
        self._parts = [LayerSubset(target, range(start, end)) for start, end in zip((0, *ends), ends, strict=False)]

    def new_cache(self, capacity: int) -> StackedRows:
        return StackedRows([part.new_cache(capacity) for part in self._parts] + [super().new_cache(capacity)])

    def block(self, embeddings: Tensor, lower: Tensor, positions: Tensor, **rows) -> HeadOutput:
        """The own layer, as `LayerHead.forward`: reads embeddings and what the target's last read layer made of them.

        Args:
            lower: (batch, rows, hidden), scaled as features of lower layers are.
        """
        return super().forward(embeddings, lower, positions, **rows)

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: StackedRows | None = None,
    ) -> HeadOutput:
        """Drafts rows: (1, rows, hidden) embeddings, whose features are not read; the cache is extended."""
        lower = self.lower(embeddings, positions, mask, cache, len(self._parts))
        return self.above(embeddings, lower, positions, mask=mask, cache=cache.parts[-1])

    def above(self, embeddings: Tensor, lower: list[Tensor], positions: Tensor, **rows) -> HeadOutput:
        """What follows `lower`, whose arguments are the same."""
        return self.block(embeddings, lower[-1], positions, **rows)

    def lower(
        self, embeddings: Tensor, positions: Tensor, mask: Tensor | None, cache: StackedRows, count: int
    ) -> list[Tensor]:
        """What the first `count` parts of the target make of rows, (1, rows, hidden) each, scaled."""
        rows = embeddings.shape[1]
        if mask is None:
            order = torch.arange(rows, device=embeddings.device)
            mask = (order <= order[:, None])[None, None]
        hidden, found = embeddings[0], []
        for part, own in zip(self._parts[:count], cache.parts, strict=False):
            hidden = part(hidden, positions[0], mask[0, 0], own)
            found.append(scaled(hidden).to(embeddings.dtype)[None])
        return found


class NestedHead(ExitHead):
    """An exit head that can also leave after each of `exit_layers`: a matrix predicts the last feature from there."""

    def __init__(self, config: NestedConfig) -> None:
        super().__init__(config)
        self.exits = nn.ModuleList(nn.Linear(config.hidden_size, config.hidden_size) for _ in config.exit_layers)

    @property
    def levels(self) -> int:
        """Exits."""
        return 1 + len(self.exits)

    def pack_matrices(self, packing: Packing) -> None:
        super().pack_matrices(packing)
        pack_linears(self.exits, packing)

    def all_exits(self, embeddings: Tensor, lower: list[Tensor], positions: Tensor, **rows) -> Tensor:
        """(exits + 1, batch, rows, hidden) features: after each of `exit_layers`, and the own layer's."""
        own = self.block(embeddings, lower[-1], positions, **rows).features
        return torch.stack([*(leave(each) for leave, each in zip(self.exits, lower, strict=True)), own])

    def above(self, embeddings: Tensor, lower: list[Tensor], positions: Tensor, **rows) -> HeadOutput:
        """As `ExitHead.above`; `expert_outputs` are all exits' features."""
        found = self.all_exits(embeddings, lower, positions, **rows)
        return HeadOutput(found[-1], None, found[-1], found, found[-1], None)

    def leave_at(
        self, number: int, embeddings: Tensor, positions: Tensor, mask: Tensor, cache: StackedRows
    ) -> HeadOutput:
        """Drafts rows up to one exit, counted from 0; the parts after it are not run."""
        lower = self.lower(embeddings, positions, mask, cache, number + 1)
        if number == len(self.exits):
            return super().above(embeddings, lower, positions, mask=mask, cache=cache.parts[-1])
        return row_output(self.exits[number](lower[-1]))
