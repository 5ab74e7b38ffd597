"""The Gumiho head: two layers predict two levels serially, then an MLP for each further level, all at once.

The MLPs read the layers' inputs for the tokens of both levels, [fc(E[t1]; h0); fc(E[t2]; h1)], where h0 and h1 are the
features that t1 and t2 were chosen from. Gumiho, arXiv 2503.10135; its MLPs are chains of residual blocks, ours correct
the second of these rows, which is already a guess of the third level's feature.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.heads.layer_head import LayerHead
from jakiro.heads.medusa.network import ResidualBlock
from jakiro.ops.linear import Packing, pack_linears
from lab.published.gumiho.config import GumihoConfig

# Levels that the layers draft, one after the other
SERIAL = 2


class ParallelMLP(nn.Module):
    """second + write(silu(read([first; second]))), the feature of one level."""

    def __init__(self, config: GumihoConfig) -> None:
        super().__init__()
        self.read = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.write = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """(…, 2 · hidden) → (…, hidden)."""
        return rows[..., self.write.out_features :] + self.write(self.inner(rows))

    def inner(self, rows: Tensor) -> Tensor:
        """What the last matrix reads."""
        return functional.silu(self.read(rows))


class PublishedGumihoMLP(nn.Module):
    """As it is published: silu(read([first; second])), then residual blocks."""

    def __init__(self, config: GumihoConfig) -> None:
        super().__init__()
        self.read = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.blocks = nn.Sequential(*(ResidualBlock(config.hidden_size) for _ in range(config.published_blocks)))

    def forward(self, rows: Tensor) -> Tensor:
        """(…, 2 · hidden) → (…, hidden)."""
        return self.blocks(functional.silu(self.read(rows)))


class GumihoHead(LayerHead):
    """Layers for the first two levels, MLPs for those after them."""

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
        """(count, …, hidden) features of the levels after the second.

        Args:
            first, second: (…, hidden), what `fc` makes of the tokens of levels 1 and 2 and the features that they
                were chosen from.
            count: levels at most.
        """
        rows = torch.cat([first, second], dim=-1)
        return torch.stack([mlp(rows) for mlp in self.mlps[:count]])
