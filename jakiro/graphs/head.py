"""One pass of a fused head over rows at fixed addresses, in as few kernels as torch's operations allow.

What `LayerHead` computes, over storage that masks slice: angles are looked up in one table, residuals are added by the
matrix product, and one small product mixes the experts for the main and the contrastive feature alike. What only the
evidence of a tree needs stays where a later pass reads it.
"""

import torch
from torch import Tensor

from jakiro.graphs.cache import StaticCache
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput
from jakiro.kernels.attention import attend_grouped
from jakiro.kernels.rotary import apply_rotary, signed


class FusedHead:
    """A head at fixed addresses; its matrices are fused here where they are not yet, see `LayerHead.fuse`.

    Args:
        cache: of as many columns as passes ever attend to.
        rows: that passes leave for the evidence, of all passes of a draft together.

    Attributes:
        angles: (columns, 2, head_dim), cosines and signed sines of all positions.
        residual: (rows, hidden). expert_outputs: (experts, rows, hidden). mixing: (rows, kinds, experts), the weights
            of the main feature and, with a second kind, the contrastive one; see `HeadOutput`.
    """

    def __init__(self, head: LayerHead, cache: StaticCache, rows: int) -> None:
        if head.layers[0].self_attn.query_key_value is None:
            head.fuse()
        self.head, self.config, self._layers = head, head.config, cache.store.unbind(0)
        like, columns = head.output_weight, cache.store.shape[3]
        positions = torch.arange(columns, device=like.device)
        cos, sin = head.rotary(torch.empty((), device=like.device), positions[None])
        self.angles = torch.stack([cos[0], signed(sin[0])], dim=1).to(like.dtype)
        experts, hidden = self.config.num_experts, self.config.hidden_size
        self.residual = like.new_zeros((rows, hidden))
        self.expert_outputs = like.new_zeros((experts, rows, hidden))
        self.mixing = like.new_zeros((rows, 1 + self.config.contrastive, experts))
        # By which the shares are multiplied where the first expert of the pair is the stronger one, and else
        self._signs = (like.new_tensor([[1, 1], [1, -1]]), like.new_tensor([[1, 1], [-1, 1]]))

    @property
    def buffers(self) -> list[Tensor]:
        return [self.angles, self.residual, self.expert_outputs, self.mixing]

    def run(
        self, embeddings: Tensor, features: Tensor, angles: Tensor, places: Tensor, mask: Tensor, first: int
    ) -> Tensor:
        """Runs rows and writes them into the cache.

        Args:
            embeddings, features: (rows, hidden) and (rows, feature_size) or (rows, hidden).
            angles: (rows or 1, 2, head_dim).
            places: (rows,) int64, where the cache takes the rows.
            mask: (groups, rows, columns) to add to scores, the same for each query that shares a key/value head.
            first: of the evidence's rows, those of this pass begin here.

        Returns:
            (rows, kinds, hidden), the main and the contrastive feature; decoupled: (experts, rows, hidden).
        """
        last, deeper = features.tensor_split([self.config.hidden_size], dim=-1)
        hidden = self.head.stream(torch.cat([embeddings, last], dim=-1), deeper)
        kept = slice(first, first + hidden.shape[0])
        residual, outputs = self.residual[kept], self.expert_outputs[:, kept]
        for layer, store in zip(self.head.layers, self._layers, strict=True):
            if layer is not self.head.layers[0]:
                # Only layers of one expert follow one another
                hidden = residual + outputs[0]
            self._attend(layer, hidden, angles, places, mask, store, residual)
            read, mixture = layer.post_attention_layernorm(residual), layer.mlp_moe
            parts = mixture.readers(read).unflatten(-1, (mixture.num_experts, -1, mixture.writers.shape[1]))
            torch.bmm(mixture.inner(*parts.unbind(-2)).transpose(0, 1), mixture.writers, out=outputs)
        mixing = self._mix(mixture.gate(read), self.mixing[kept])
        if self.config.fusion == "decoupled":
            return residual + outputs
        return torch.baddbmm(residual[:, None], mixing, outputs.transpose(0, 1))

    def _attend(
        self, layer, hidden: Tensor, angles: Tensor, places: Tensor, mask: Tensor, store: Tensor, out: Tensor
    ) -> None:
        """Writes the stream after attention: (rows, hidden)."""
        attention, columns = layer.self_attn, mask.shape[-1]
        read = hidden if layer.input_layernorm is None else layer.input_layernorm(hidden)
        fused = attention.query_key_value(read).unflatten(-1, (-1, attention.head_dim))
        turning = attention.num_heads + attention.num_kv_heads
        cos, signed_sin = angles[:, :1], angles[:, 1:]
        turned = apply_rotary(fused[:, :turning], cos, signed_sin).transpose(0, 1)
        queries, keys = turned.tensor_split([attention.num_heads])
        store[0].index_copy_(1, places, keys)
        store[1].index_copy_(1, places, fused[:, turning:].transpose(0, 1))
        keys, values = store[:, None, :, :columns]
        added, scaling = mask.flatten(0, 1)[None], attention.head_dim**-0.5
        attended = attend_grouped(queries, keys, values, added, scaling)
        torch.addmm(hidden, attended.transpose(0, 1).flatten(1), attention.o_proj.weight.T, out=out)

    def _mix(self, logits: Tensor, out: Tensor) -> Tensor:
        """(rows, router rows) → `out`, see `mixing`."""
        if not self.config.contrastive:
            torch.softmax(logits[:, : self.config.num_experts], -1, out=out[:, 0])
            return out
        first_is_stronger = (logits[:, 2:3] >= logits[:, 3:])[..., None]
        signs = torch.where(first_is_stronger, *self._signs)
        return torch.mul(logits.unflatten(-1, (2, 2)).softmax(-1), signs, out=out)

    @property
    def left(self) -> HeadOutput:
        """All rows that passes left, as one pass over them."""
        contrastive = self.mixing[None, :, 1] if self.config.contrastive else None
        features = self.expert_outputs[:, None] if self.config.fusion == "summed" else None
        if features is None:
            features = (self.residual + self.expert_outputs)[:, None]
        return HeadOutput(
            features, None, self.residual[None], self.expert_outputs[:, None], self.mixing[None, :, 0], contrastive
        )
