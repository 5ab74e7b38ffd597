"""The head of Jakiro, EAGLE and ParallelSpec: one decoder layer with experts predicts the target's next features.

From [E[x_{t+1}]; h_t] to the feature at t + 1, and with summed fusion, from the same pass, the contrastive feature one
position further. Verification and the growing of trees live elsewhere. Jakiro, arXiv 2502.06282, section 3.
"""

from functools import reduce

import torch
from torch import Tensor, nn

from jakiro.heads.base import DraftHead
from jakiro.heads.layer_config import LayerConfig
from jakiro.heads.layers import Angles, HeadLayer, HeadOutput
from jakiro.ops.cache import PassCache
from jakiro.ops.linear import Packing, linear_kernels, packed_linear
from jakiro.ops.rotary import AngleTable, changes_with_length, signed


class LayerHead(DraftHead):
    """A draft head of one layer; with one expert it is EAGLE's, and layers of one expert can be several.

    Args:
        config: sizes and fusion.
    """

    def __init__(self, config: LayerConfig) -> None:
        from jakiro.heads.rotary import rotary_embedding

        super().__init__(config)
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=config.fc_bias)
        self.layers = nn.ModuleList(HeadLayer(config, index) for index in range(config.num_layers))
        self.rotary = rotary_embedding(config)
        # By kind and expert, where the first expert of the contrastive pair is the stronger one, and else
        signs = torch.tensor([[[1.0, 1.0], [1.0, -1.0]], [[1.0, 1.0], [-1.0, 1.0]]])
        self.register_buffer("signs", signs, persistent=False)
        self._table: AngleTable | None = None
        # One call for the whole layer, if `jakiro.ops.kernels` has one
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
        """One pass over tokens.

        Args:
            embeddings: (batch, tokens, hidden), of the token one ahead of its feature.
            features: (batch, tokens, hidden), the target's feature (or the head's) at every position.
            positions: (batch or 1, tokens) int64, the rotary positions: those of the features.
            mask: bool, broadcastable to (batch, heads, tokens, keys); None means causal over these tokens alone.
            cache: of the tokens before these, extended in place.
        """
        if self.kernel is not None and self.kernel.takes(embeddings, cache):
            return self.kernel(embeddings, features, positions, mask, cache)
        hidden = self.fc(torch.cat([embeddings, features], dim=-1))
        angles = self.angles(hidden, positions, cache)
        first, *further = self.layers
        residual, expert_outputs, router_logits = first(hidden, angles, mask, cache)
        for layer in further:
            # Only layers of one expert follow one another
            residual, expert_outputs, router_logits = layer(residual + expert_outputs[0], angles, mask, cache)
        # (…, kinds, experts), of the main feature and, where there is one, the contrastive one
        weights = router_logits.unflatten(-1, (-1, self.config.num_experts)).softmax(-1)
        if self.config.fusion == "decoupled":
            return HeadOutput(residual + expert_outputs, None, residual, expert_outputs, weights[..., 0, :], None)
        if self.config.contrastive:
            first_is_stronger = router_logits[..., 2:3] >= router_logits[..., 3:]
            weights = weights * torch.where(first_is_stronger[..., None], *self.signs)
        mixed = residual + (weights.movedim((-2, -1), (0, 1))[..., None] * expert_outputs).sum(1)
        if not self.config.contrastive:
            return HeadOutput(mixed[0], None, residual, expert_outputs, weights[..., 0, :], None)
        return HeadOutput(*mixed.unbind(0), residual, expert_outputs, *weights.unbind(-2))

    def angles(self, hidden: Tensor, positions: Tensor, cache: PassCache | None = None) -> Angles:
        """Of the rotary embedding, for tokens that follow the cached ones."""
        if self._table is None:
            cos, sin = self.rotary(hidden, positions)
            return cos, signed(sin)
        # No token stands after the cache's end; without a cache positions are looked at, which drafting never does
        last = int(positions.max()) if cache is None else cache.end_after(positions.shape[1])
        return self._table.at(positions, last)


def mixture(joint: Tensor) -> Tensor:
    """log Σ_e exp(joint[e]), the log of the experts' mixture: (experts, …) → (…).

    Over so short a first dimension `logsumexp` takes three times as long on a CPU.
    """
    return reduce(torch.logaddexp, joint)
