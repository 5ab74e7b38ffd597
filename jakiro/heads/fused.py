"""The head's decoder layer with fused and packed matrices, for drafting on a CPU in float32.

A pass over a handful of rows is mostly dispatch: here projections that read the same input are one product, and the
rotary angles of all positions are looked up. The same function as `HeadLayer` after the input projection.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.heads.layers import HeadCache, HeadLayer, joined
from jakiro.kernels.quantized import balanced
from jakiro.kernels.rotary import AngleTable, apply_rotary

Packing = Callable[[Tensor, Tensor | None], nn.Module]


class LeanHeadLayer(nn.Module):
    """Made from a head's input projection and layer, whose weights it copies.

    Args:
        projection: the input projection; deeper: that of features from further layers, or None.
        rotary: the head's rotary embedding.
        packed: packs a matrix without changing it.
        rounded: packs the large matrices of attention and experts; the input projection, which reads embeddings and
            features of very different sizes, and the router, which is small and decides much, never go through it.
    """

    def __init__(
        self,
        projection: nn.Linear,
        deeper: nn.Linear | None,
        layer: HeadLayer,
        rotary: nn.Module,
        packed: Packing,
        rounded: Packing,
    ) -> None:
        super().__init__()
        attention, mixture = layer.self_attn, layer.mlp_moe
        self.num_heads, self.num_kv_heads = attention.num_heads, attention.num_kv_heads
        self.head_dim, self._angles = attention.head_dim, AngleTable(rotary)
        self.projection = packed(projection.weight, projection.bias)
        # Rows of the target's, read by both projections at once.
        self.wide_projection = None
        if deeper is not None:
            joint = torch.cat([projection.weight, deeper.weight], dim=1).detach()
            self.wide_projection = packed(joint, projection.bias)
        joint, self.stream_factors = balanced(joined([attention.q_proj, attention.k_proj, attention.v_proj]))
        self.query_key_value = rounded(joint, None)
        self.output = rounded(attention.o_proj.weight, None)
        norm = layer.post_attention_layernorm
        self.eps = norm.variance_epsilon
        readers = [list(expert.children())[:-1] for expert in mixture.experts]
        self.gated = len(readers[0]) == 2
        joint, factors = balanced(joined([reader for each in readers for reader in each]))
        self.read, self.norm = rounded(joint, None), norm.weight.detach() * factors
        self.write = nn.ModuleList(rounded(list(expert.children())[-1].weight, None) for expert in mixture.experts)
        self.gate = mixture.gate.weight.detach() / factors

    def forward(
        self, embeddings: Tensor, features: Tensor, positions: Tensor, mask: Tensor | None, cache: HeadCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `JakiroHead.forward` takes them; gives what `HeadLayer` gives."""
        is_wide = features.shape[-1] > embeddings.shape[-1]
        projection = self.wide_projection if is_wide else self.projection
        hidden = projection(torch.cat([embeddings, features], dim=-1))
        joint = self.query_key_value(hidden * self.stream_factors)
        residual = hidden + self.output(self._attend(joint, positions, mask, cache))
        normed = functional.rms_norm(residual, residual.shape[-1:], self.norm, self.eps)
        inner = self.read(normed).unflatten(-1, (len(self.write), 1 + self.gated, -1))
        if self.gated:
            inner = functional.silu(inner[..., 0, :]) * inner[..., 1, :]
        else:
            inner = functional.gelu(inner[..., 0, :])
        outputs = torch.stack([write(inner[..., expert, :]) for expert, write in enumerate(self.write)])
        return residual, outputs, functional.linear(normed, self.gate)

    def _attend(self, joint: Tensor, positions: Tensor, mask: Tensor | None, cache: HeadCache | None) -> Tensor:
        """(batch, rows, query, key and value widths together) → (batch, rows, heads · head_dim)."""
        joint = joint.unflatten(-1, (-1, self.head_dim))
        # No row stands after the cache's end; without a cache positions are looked at, which drafting never does
        last = int(positions.max()) if cache is None else cache.length + positions.shape[1]
        cos, sin = (part[..., None, :] for part in self._angles.at(positions, last))
        turned = apply_rotary(joint[..., : self.num_heads + self.num_kv_heads, :], cos, sin).transpose(1, 2)
        queries, keys = turned.split([self.num_heads, self.num_kv_heads], dim=1)
        values = joint[..., self.num_heads + self.num_kv_heads :, :].transpose(1, 2)
        if cache is not None:
            keys, values = cache.append(keys, values)
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return attended.transpose(1, 2).flatten(2)
