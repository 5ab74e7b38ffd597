"""The Medusa head: one MLP for each level reads the target's last feature, so all levels are drafted in parallel.

As in Medusa-1 (arXiv 2401.10774), each MLP is a residual block h + silu(W h + b) and a last matrix. In the paper the
last matrix has a row for each token. Here it maps to a feature, which the target's output rows score.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.heads.base import FeatureHead
from jakiro.heads.medusa.config import MedusaConfig


class ResidualBlock(nn.Module):
    """h + silu(linear(h))."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + functional.silu(self.linear(hidden))


class MedusaMLP(nn.Module):
    """Prediction of the target's feature a fixed number of positions later."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.block = ResidualBlock(config.hidden_size)
        self.write = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.write(self.block(hidden))


class PublishedMedusaMLP(nn.Module):
    """The published form of an MLP: residual blocks, and its own output rows over the whole vocabulary."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(ResidualBlock(config.hidden_size) for _ in range(config.published_blocks)))
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.blocks(hidden)


class MedusaHead(FeatureHead):
    """A head of MLPs, one for each level."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__(config)
        mlp = PublishedMedusaMLP if config.published_blocks else MedusaMLP
        self.mlps = nn.ModuleList(mlp(config) for _ in range(config.num_mlps))

    @property
    def levels(self) -> int:
        return self.config.num_mlps

    def forward(self, features: Tensor) -> Tensor:
        """Map the target's features, (…, hidden), to the predictions of each level's MLP, (levels, …, hidden)."""
        return torch.stack([mlp(features) for mlp in self.mlps])

    def logits(self, features: Tensor) -> Tensor:
        """Return logits as `DraftHead.logits`; published MLPs require (levels, hidden) features, a row per level."""
        if not self.config.published_blocks:
            return super().logits(features)
        return torch.stack([mlp.output(row[None])[0] for mlp, row in zip(self.mlps, features, strict=False)])
