"""The network that EAGLE, ParallelSpec and Jakiro share: decoder layers that predict the target's next feature.

A row maps [E[x_{t+1}]; h_t] to the feature at t + 1. EAGLE, arXiv 2401.15077, section 4.
"""

from functools import reduce

import torch
from torch import Tensor, nn

from jakiro.heads.base import DraftHead
from jakiro.heads.layer_config import LayerConfig
from jakiro.heads.layers import Angles, ExpertMixture, HeadLayer, HeadOutput, SwiGLUExpert
from jakiro.ops.cache import PassCache
from jakiro.ops.linear import Packing, linear_kernels, packed_linear
from jakiro.ops.rotary import AngleTable, changes_with_length, signed


class LayerHead(DraftHead):
    """A draft head of dense decoder layers; a subclass may have one layer with several experts.

    Args:
        config: Sizes.

    Attributes:
        kernel: One call for the whole layer; None if there is none.
    """

    expert_type: type[nn.Module] = SwiGLUExpert

    def __init__(self, config: LayerConfig) -> None:
        from jakiro.heads.rotary import rotary_embedding

        super().__init__(config)
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=config.fc_bias)
        router_rows = self.num_experts + 2 * self.has_contrastive_branch
        self.layers = nn.ModuleList(
            HeadLayer(config, ExpertMixture(config, self.expert_type, self.num_experts, router_rows), index)
            for index in range(config.num_layers)
        )
        self.rotary = rotary_embedding(config)
        self._table: AngleTable | None = None
        self.kernel: nn.Module | None = None

    @property
    def packable(self) -> bool:
        return not changes_with_length(self.rotary)

    def pack_matrices(self, packing: Packing) -> None:
        self._table = AngleTable(self.rotary)
        if len(self.layers) == 1:
            self.kernel = linear_kernels().head_layer(self.fc, self.layers[0], self._table, packing)
        for layer in self.layers:
            layer.pack(packing)
        # Never rounded: embeddings and features are of very different sizes
        self.fc = packed_linear(self.fc.weight, self.fc.bias)

    def fuse(self) -> None:
        for layer in self.layers:
            layer.fuse()
        if self.packable:
            self._table = AngleTable(self.rotary, self.fc.weight.dtype)

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: PassCache | None = None,
    ) -> HeadOutput:
        """Run one pass over tokens.

        Args:
            embeddings: (batch, tokens, hidden), of the token one position after each feature.
            features: (batch, tokens, hidden), the target's feature (or the head's) at every position.
            positions: (batch or 1, tokens) int64, rotary positions of the features.
            mask: bool, broadcastable to (batch, heads, tokens, keys); None for a causal mask over these tokens only.
            cache: Rows of the preceding tokens, extended in place.
        """
        if self.kernel is not None and self.kernel.takes(embeddings, cache):
            return self.kernel(embeddings, features, positions, mask, cache)
        hidden = self.fc(torch.cat([embeddings, features], dim=-1))
        angles = self.angles(hidden, positions, cache)
        first, *later_layers = self.layers
        residual, expert_outputs, router_logits = first(hidden, angles, mask, cache)
        for layer in later_layers:
            # Only a head with one expert has several layers
            residual, expert_outputs, router_logits = layer(residual + expert_outputs[0], angles, mask, cache)
        return self.combine(residual, expert_outputs, router_logits)

    def combine(self, residual: Tensor, expert_outputs: Tensor, router_logits: Tensor) -> HeadOutput:
        """Return the output of the last layer's experts.

        Args:
            residual: (batch, tokens, hidden), the stream before the experts.
            expert_outputs: (experts, batch, tokens, hidden).
            router_logits: (batch, tokens, router rows).
        """
        # All ones: the router of a single expert exists only because files have one
        weights = router_logits.softmax(-1)
        return HeadOutput(residual + weights * expert_outputs[0], None, residual, expert_outputs, weights, None)

    def angles(self, hidden: Tensor, positions: Tensor, cache: PassCache | None = None) -> Angles:
        """Return cosines and signed sines for tokens that follow the cached ones."""
        if self._table is None:
            cos, sin = self.rotary(hidden, positions)
            return cos, signed(sin)
        # No position is after the end of the cache; without a cache the host reads the positions, as in training
        last = int(positions.max()) if cache is None else cache.end_after(positions.shape[1])
        return self._table.at(positions, last)


def mixture(joint: Tensor) -> Tensor:
    """Return log Σ_e exp(joint[e]), the log of the experts' mixture: (experts, …) → (…).

    `logsumexp` over such a short first dimension takes three times as long on a CPU.
    """
    return reduce(torch.logaddexp, joint)
