"""Calls the C draft head (`csrc/head.c`): a head's layer in one call, on a CPU."""

import ctypes
from functools import partial

import torch
from torch import Tensor, nn

from jakiro.heads.layers import HeadLayer, HeadOutput, fused
from jakiro.kernels.cache import PassCache, RowCache
from jakiro.kernels.compiled.library import Head, HeadPass, Matrix, library, num_threads
from jakiro.kernels.linear import Packing
from jakiro.kernels.rotary import AngleTable

_MOST_ROWS = 64


class NativeHeadLayer(nn.Module):
    """Made from a head's input projection and layer, whose weights it copies.

    Args:
        projection: the input projection; deeper: that of features from further layers, or None.
        angles: of the head's rotary embedding.
        packing: packs matrices for compiled products, see `packing_for`.
    """

    def __init__(
        self, projection: nn.Linear, deeper: nn.Linear | None, layer: HeadLayer, angles: AngleTable, packing: Packing
    ) -> None:
        super().__init__()

        pack = partial(packing, bias=None)
        attention, mixture = layer.self_attn, layer.mlp_moe
        self._angles = angles
        self.norm = layer.post_attention_layernorm.weight.detach().float().contiguous()
        self.projection, self.wide_projection = packing(projection.weight, projection.bias), None
        if deeper is not None:
            # Rows of the target's, read by both projections at once
            self.wide_projection = packing(torch.cat([projection.weight, deeper.weight], dim=1), projection.bias)
        self.query_key_value = pack(fused([attention.q_proj, attention.k_proj, attention.v_proj]))
        self.output, self.router = pack(attention.o_proj.weight), pack(mixture.gate.weight)
        experts = [list(expert.children()) for expert in mixture.experts]
        self.read = nn.ModuleList(pack(fused(linears[:-1])) for linears in experts)
        self.write = nn.ModuleList(pack(linears[-1].weight) for linears in experts)
        self.heads, self.kv_heads, self.head_dim = attention.num_heads, attention.num_kv_heads, attention.head_dim
        self.hidden_size, self.inner_size = self.output.out_features, self.write[0].in_features
        self._matrices = [(Matrix * len(experts))(*(each.matrix for each in part)) for part in (self.read, self.write)]
        self._summed, self._contrastive = len(experts[0]) == 3, self.router.out_features > len(experts)
        sizes = (self.hidden_size, self.inner_size, len(experts), self.heads, self.kv_heads, self.head_dim)
        self._structures = {
            wide: Head(
                projection.matrix,
                self.query_key_value.matrix,
                self.output.matrix,
                self.router.matrix,
                *self._matrices,
                self.norm.data_ptr(),
                layer.post_attention_layernorm.eps,
                self.head_dim**-0.5,
                *sizes,
                self._summed,
                self._contrastive,
            )
            for wide, projection in ((False, self.projection), (True, self.wide_projection))
            if projection is not None
        }

    @staticmethod
    def takes(embeddings: Tensor, cache: PassCache | None) -> bool:
        """Whether these are the few rows of a draft; a prompt is better read by kernels for many rows."""
        return isinstance(cache, RowCache) and embeddings.shape[0] == 1 and embeddings.shape[1] <= _MOST_ROWS

    @staticmethod
    def fits(layer: HeadLayer) -> bool:
        """Whether the experts' gates, where they have any, fill whole panels of weights."""
        linears = list(layer.mlp_moe.experts[0].children())
        return len(linears) == 2 or linears[-1].in_features % library().jakiro_panel() == 0

    def forward(
        self, embeddings: Tensor, features: Tensor, positions: Tensor, mask: Tensor | None, cache: RowCache
    ) -> HeadOutput:
        """As `LayerHead.forward` takes them, for rows that `takes` takes."""
        rows, start = embeddings.shape[1], cache.extend(embeddings.shape[1])
        (keys, values), last = cache.store.rows[0], cache.length
        if mask is None:
            mask = torch.arange(last) <= torch.arange(start, last)[:, None]
        inputs = torch.cat([embeddings[0], features[0]], dim=-1)
        structure = self._structures[inputs.shape[1] > 2 * self.hidden_size]
        cos, sin = self._angles.at(positions[0], last)
        hidden, router_rows, experts = self.hidden_size, self.router.out_features, len(self.write)
        widths = [hidden, (self.heads + 2 * self.kv_heads) * self.head_dim, self.heads * self.head_dim]
        widths += [experts * self.inner_size, experts * hidden, router_rows, hidden, hidden]
        threads = num_threads()
        memory = threads * library().jakiro_head_floats(ctypes.byref(structure), rows, start + rows)
        buffers = inputs.new_empty(rows * sum(widths) + memory).split([*(rows * width for width in widths), memory])
        stream, _, _, _, outputs, router, mixed, contrast, _ = buffers
        mask = mask.reshape(rows, start + rows).contiguous()
        read = (inputs, cos, sin, mask, keys, values, *buffers)
        library().jakiro_draft(
            ctypes.byref(
                HeadPass(ctypes.pointer(structure), rows, start, keys.shape[1], *(each.data_ptr() for each in read))
            ),
            threads,
        )
        stream, outputs = stream.view(1, rows, hidden), outputs.view(experts, 1, rows, hidden)
        weights, pair = router.view(1, rows, router_rows).split([experts, router_rows - experts], dim=-1)
        if not self._summed:
            return HeadOutput(stream + outputs, None, stream, outputs, weights, None)
        if not self._contrastive:
            return HeadOutput(mixed.view(1, rows, hidden), None, stream, outputs, weights, None)
        return HeadOutput(mixed.view(1, rows, hidden), contrast.view(1, rows, hidden), stream, outputs, weights, pair)
