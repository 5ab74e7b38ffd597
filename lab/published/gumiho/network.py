"""The Gumiho head: two layers predict two levels serially, then one MLP per deeper level, all at once.

The MLPs read the layers' inputs for the tokens of both levels, [fc(E[t1]; h0); fc(E[t2]; h1)], where t1 was chosen from
the feature h0 and t2 from h1. In Gumiho (arXiv 2503.10135) the MLPs are chains of residual blocks; ours correct the
second of these rows, which is already an estimate of the third level's feature.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.heads.layer_head import LayerHead
from jakiro.heads.medusa.network import ResidualBlock
from jakiro.ops.linear import Packing, pack_linears
from lab.published.gumiho.config import GumihoConfig

# Levels that the layers draft serially
SERIAL = 2


class ParallelMLP(nn.Module):
    """MLP of one level: second + write(silu(read([first; second])))."""

    def __init__(self, config: GumihoConfig) -> None:
        super().__init__()
        self.read = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.write = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Map (…, 2 · hidden) rows to (…, hidden) features."""
        return rows[..., self.write.out_features :] + self.write(self.inner(rows))

    def inner(self, rows: Tensor) -> Tensor:
        """Return the input of the last matrix."""
        return functional.silu(self.read(rows))


class PublishedGumihoMLP(nn.Module):
    """MLP of one level in the published form: silu(read([first; second])), then residual blocks."""

    def __init__(self, config: GumihoConfig) -> None:
        super().__init__()
        self.read = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.blocks = nn.Sequential(*(ResidualBlock(config.hidden_size) for _ in range(config.published_blocks)))

    def forward(self, rows: Tensor) -> Tensor:
        """Map (…, 2 · hidden) rows to (…, hidden) features."""
        return self.blocks(functional.silu(self.read(rows)))


class GumihoHead(LayerHead):
    """Layers for the first two levels and MLPs for deeper levels."""

    def __init__(self, config: GumihoConfig) -> None:
        super().__init__(config)
        mlp = PublishedGumihoMLP if config.published_blocks else ParallelMLP
        self.mlps = nn.ModuleList(mlp(config) for _ in range(config.num_mlps))

    @property
    def levels(self) -> int:
        return SERIAL + self.config.num_mlps

    def pack_matrices(self, packing: Packing) -> None:
        super().pack_matrices(packing)
        pack_linears(self.mlps, packing)

    def further(self, first: Tensor, second: Tensor, count: int) -> Tensor:
        """Return (count, …, hidden) features of the levels after the second.

        Args:
            first, second: (…, hidden), outputs of `fc` for the tokens of levels 1 and 2 and the features before them.
            count: maximum number of levels.
        """
        rows = torch.cat([first, second], dim=-1)
        return torch.stack([mlp(rows) for mlp in self.mlps[:count]])
