"""The Medusa head: one MLP for each level reads the target's last feature; nothing is drafted serially.

As in Medusa-1 (arXiv 2401.10774) each MLP is a residual block h + silu(W h + b) and a last matrix of its own. There the
last matrix has a row for each token; here it maps to a feature, which the target's output rows score for all levels.
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
    """From the target's feature to the one that is a fixed number of positions further."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.block = ResidualBlock(config.hidden_size)
        self.write = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.write(self.block(hidden))


class PublishedMedusaMLP(nn.Module):
    """As it is published: residual blocks, and output rows of its own over the whole vocabulary."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(ResidualBlock(config.hidden_size) for _ in range(config.published_blocks)))
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.blocks(hidden)


class MedusaHead(FeatureHead):
    """MLPs alone, one for each level."""

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__(config)
        mlp = PublishedMedusaMLP if config.published_blocks else MedusaMLP
        self.mlps = nn.ModuleList(mlp(config) for _ in range(config.num_mlps))

    @property
    def levels(self) -> int:
        return self.config.num_mlps

    def forward(self, features: Tensor) -> Tensor:
        """The target's features, (…, hidden), to (levels, …, hidden) of what each level's MLP predicts."""
        return torch.stack([mlp(features) for mlp in self.mlps])

    def logits(self, features: Tensor) -> Tensor:
        """As `DraftHead.logits`; MLPs with output rows of their own take (levels, hidden), a row for each level."""
        if not self.config.published_blocks:
            return super().logits(features)
        return torch.stack([mlp.output(row[None])[0] for mlp, row in zip(self.mlps, features, strict=False)])
