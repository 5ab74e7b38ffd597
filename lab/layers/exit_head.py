"""Heads on top of the target's first layers: one trained layer predicts the target's last feature.

The target's layers are frozen and shared, so a head stores only its own layer. It reads a token's embedding and the
output of the target's first layers, and predicts the feature at the same position: a language model with a quarter of
the depth. `NestedHead` can also exit after any of `exit_layers`, with one matrix each (S2D, arXiv 2407.01955).
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
    """Config of a head on top of the target's first layers.

    Attributes:
        exit_layers: ascending numbers of the target's layers whose outputs are read; the layers up to the last of them
            are part of the draft.
    """

    exit_layers: tuple[int, ...]
    kind = "stacked"

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = self.exit_layers
        need(
            layers and is_ascending(layers, 1),
            f"exit_layers must be ascending layer numbers of at least 1; got {layers}",
        )
        object.__setattr__(self, "exit_layers", tuple(layers))

    @property
    def feature_size(self) -> int:
        """Width of the training features: the target's last state and the states of the exits; not read by drafts."""
        return (1 + len(self.exit_layers)) * self.hidden_size


class DistilledConfig(ExitConfig):
    """Config of a head trained on text written by the draft and scored by the target."""

    kind = "distilled"


class NestedConfig(ExitConfig):
    """Config of a head that can exit after each of `exit_layers`."""

    kind = "nested"


class StackedRows:
    """The cache rows of the target's layers, by part, and of the head's own layer; of equal length between drafts.

    While a tree grows, parts after an early exit lack the drafted rows; `keep` makes all parts equal again.
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
        """Return the mask of `RowCache.visible`."""
        return self.parts[0].visible(among)

    def keep(self, base: int) -> None:
        """Keep the first `base` rows."""
        for part in self.parts:
            part.keep(base)

    def first(self, length: int) -> Tensor:
        """Return the rows of `RowCache.first`, with the layers of all parts in order."""
        return torch.cat([part.first(length) for part in self.parts])

    def load_prefix(self, rows: Tensor) -> None:
        """Load rows as `RowCache.load_prefix` does."""
        for part, part_rows in zip(self.parts, rows.split([len(part.layers) for part in self.parts]), strict=True):
            part.load_prefix(part_rows)


def scaled(hidden: Tensor) -> Tensor:
    """Scale rows to a root mean square of one, because the residual stream grows with depth."""
    return functional.rms_norm(hidden, hidden.shape[-1:], eps=1e-6)


class ExitHead(LayerHead):
    """One layer on top of the target's first ones. Call `attach` before drafting; training does not need it."""

    skipped_tokens = 0
    capturable = False

    def __init__(self, config: ExitConfig) -> None:
        super().__init__(config)
        self._parts: list[LayerSubset] = []

    @property
    def levels(self) -> int:
        return 1

    def attach(self, target: TargetModel) -> None:
        """Use the target's first layers, divided at the exits.

        Raises:
            ValueError: the target has fewer layers, or they cannot run separately.
        """
        ends, count = self.config.exit_layers, target.config.num_hidden_layers
        if ends[-1] > count:
            raise ValueError(
                f"The draft head needs {ends[-1]} target layers; the target has {count}. Use another head."
            )
        self._parts = [LayerSubset(target, range(start, end)) for start, end in zip((0, *ends), ends, strict=False)]

    def new_cache(self, capacity: int) -> StackedRows:
        return StackedRows([part.new_cache(capacity) for part in self._parts] + [super().new_cache(capacity)])

    def block(self, embeddings: Tensor, lower: Tensor, positions: Tensor, **rows) -> HeadOutput:
        """Run the own layer, as `LayerHead.forward`.

        Args:
            lower: (batch, rows, hidden), the output of the target's last layer that is read, scaled by `scaled`.
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
        """Draft rows from (1, rows, hidden) embeddings and append them to the cache; the features are not used."""
        lower = self.lower(embeddings, positions, mask, cache, len(self._parts))
        return self.above(embeddings, lower, positions, mask=mask, cache=cache.parts[-1])

    def above(self, embeddings: Tensor, lower: list[Tensor], positions: Tensor, **rows) -> HeadOutput:
        """Run the layers after those of `lower`."""
        return self.block(embeddings, lower[-1], positions, **rows)

    def lower(
        self, embeddings: Tensor, positions: Tensor, mask: Tensor | None, cache: StackedRows, count: int
    ) -> list[Tensor]:
        """Return the scaled outputs of the first `count` parts of the target, (1, rows, hidden) each."""
        rows = embeddings.shape[1]
        if mask is None:
            order = torch.arange(rows, device=embeddings.device)
            mask = (order <= order[:, None])[None, None]
        hidden, outputs = embeddings[0], []
        for part, part_cache in zip(self._parts[:count], cache.parts, strict=False):
            hidden = part(hidden, positions[0], mask[0, 0], part_cache)
            outputs.append(scaled(hidden).to(embeddings.dtype)[None])
        return outputs


class NestedHead(ExitHead):
    """An exit head that can also exit after each of `exit_layers`: a matrix predicts the last feature there."""

    def __init__(self, config: NestedConfig) -> None:
        super().__init__(config)
        self.exits = nn.ModuleList(nn.Linear(config.hidden_size, config.hidden_size) for _ in config.exit_layers)

    @property
    def levels(self) -> int:
        """Number of exits."""
        return 1 + len(self.exits)

    def pack_matrices(self, packing: Packing) -> None:
        super().pack_matrices(packing)
        pack_linears(self.exits, packing)

    def all_exits(self, embeddings: Tensor, lower: list[Tensor], positions: Tensor, **rows) -> Tensor:
        """Return (exits + 1, batch, rows, hidden) features: after each of `exit_layers`, and the own layer's."""
        last = self.block(embeddings, lower[-1], positions, **rows).features
        return torch.stack([*(leave(state) for leave, state in zip(self.exits, lower, strict=True)), last])

    def above(self, embeddings: Tensor, lower: list[Tensor], positions: Tensor, **rows) -> HeadOutput:
        """Run `ExitHead.above`; `expert_outputs` are the features of all exits."""
        exits = self.all_exits(embeddings, lower, positions, **rows)
        return HeadOutput(exits[-1], None, exits[-1], exits, exits[-1], None)

    def leave_at(
        self, number: int, embeddings: Tensor, positions: Tensor, mask: Tensor, cache: StackedRows
    ) -> HeadOutput:
        """Draft rows up to one exit, counted from 0; later parts are not run."""
        lower = self.lower(embeddings, positions, mask, cache, number + 1)
        if number == len(self.exits):
            return super().above(embeddings, lower, positions, mask=mask, cache=cache.parts[-1])
        return row_output(self.exits[number](lower[-1]))
