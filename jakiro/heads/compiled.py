"""Calls the C draft head on a CPU: one pass of its layer (`csrc/head.c`), or a whole draft (`csrc/draft.c`)."""

import ctypes
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jakiro.heads.layers import HeadLayer, HeadOutput, fused
from jakiro.kernels.cache import PassCache, RowCache
from jakiro.kernels.compiled.library import Draft, Head, HeadPass, Matrix, address, library, num_threads
from jakiro.kernels.compiled.linear import BlockLinear, NativeLinear
from jakiro.kernels.linear import Packing
from jakiro.kernels.rotary import AngleTable

# Of a pass; more are a prompt, which kernels for many rows read better
MOST_ROWS = 64


class Growth(NamedTuple):
    """How a tree is to grow.

    Attributes:
        width: children of a node, and nodes expanded a level, at most.
        passes: over drafted nodes, at most.
        explored: nodes of the largest tree; what can have no child in it is not expanded.
        kept: nodes at most, root included.
        contrastive: whether the last pass gives two levels.
        temperature: of the draft's distribution.
        weights: of each level, a, b and log kept, see `heads.calibration`.
        noise: (levels, draft vocabulary) float32, or None.
    """

    width: int
    passes: int
    explored: int
    kept: int
    contrastive: bool
    temperature: float
    weights: Sequence[Sequence[float]]
    noise: Tensor | None


class NativeHeadLayer(nn.Module):
    """Made from a head's input projection and layer, whose weights it copies.

    Args:
        projection: the input projection.
        angles: of the head's rotary embedding.
        packing: packs matrices for compiled products, see `packing_for`.
    """

    def __init__(self, projection: nn.Linear, layer: HeadLayer, angles: AngleTable, packing: Packing) -> None:
        super().__init__()
        pack = partial(packing, bias=None)
        attention, mixture = layer.self_attn, layer.mlp_moe
        self._angles = angles
        self.norm = layer.post_attention_layernorm.weight.detach().float().contiguous()
        self.projection = packing(projection.weight, projection.bias)
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
        self._structure = Head(
            self.projection.matrix,
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

    @staticmethod
    def takes(embeddings: Tensor, cache: PassCache | None) -> bool:
        """Whether these are the few rows of a draft; a prompt is better read by kernels for many rows."""
        return isinstance(cache, RowCache) and embeddings.shape[0] == 1 and embeddings.shape[1] <= MOST_ROWS

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
        cos, sin = self._angles.at(positions[0], last)
        hidden, router_rows, experts = self.hidden_size, self.router.out_features, len(self.write)
        widths = [hidden, (self.heads + 2 * self.kv_heads) * self.head_dim, self.heads * self.head_dim]
        widths += [experts * self.inner_size, experts * hidden, router_rows, hidden, hidden]
        threads = num_threads()
        memory = threads * library().jakiro_head_floats(ctypes.byref(self._structure), rows, start + rows)
        buffers = inputs.new_empty(rows * sum(widths) + memory).split([*(rows * width for width in widths), memory])
        stream, _, _, _, outputs, router, mixed, contrast, _ = buffers
        mask = mask.reshape(rows, start + rows).contiguous()
        read = (inputs, cos, sin, mask, keys, values, *buffers)
        library().jakiro_draft(
            ctypes.byref(
                HeadPass(
                    ctypes.pointer(self._structure),
                    rows,
                    start,
                    keys.shape[1],
                    *(each.data_ptr() for each in read),
                    rows * hidden,
                )
            ),
            threads,
        )
        stream, outputs = stream.view(1, rows, hidden), outputs.view(experts, 1, rows, hidden)
        weights, pair = router.view(1, rows, router_rows).split([experts, router_rows - experts], dim=-1)
        features = mixed.view(1, rows, hidden) if self._summed else stream + outputs
        if not self._contrastive:
            return HeadOutput(features, None, stream, outputs, weights, None)
        return HeadOutput(features, contrast.view(1, rows, hidden), stream, outputs, weights, pair)

    def grow(
        self,
        output: NativeLinear,
        embedding: Tensor | BlockLinear,
        draft_token_ids: Tensor,
        directions: tuple[Tensor, Tensor] | None,
        token_ids: Tensor,
        features: Tensor,
        cache: RowCache,
        growth: Growth,
    ) -> tuple[Tensor, Tensor]:
        """Reads committed tokens into the cache and grows a tree on them.

        Args:
            output: of the draft vocabulary, whose ids are `draft_token_ids`. embedding: (tokens, hidden)
                float32, see `looked_up`.
            directions: (draft vocabulary, hidden) and (hidden,) float32, the output function's rows and their mean, of
                which evidence is made; None for none.
            token_ids: (rows,) int64, at most `MOST_ROWS`; features: (rows, …) the target's one position before each.
            cache: with room for the tokens and for `width` rows a pass, which are written behind them, but not counted.

        Returns:
            Of the nodes, root first: (6, nodes) int64, tokens, parents, depths, draft passes, proposers and who
            proposed it too; (2, nodes) float32, scores and draft probabilities, and below them the evidence, see
            `drafting.experts.expert_evidence`.
        """
        committed, start = token_ids.shape[0], cache.extend(token_ids.shape[0])
        rows, angles = cache.store.rows, self._angles.up_to(start + committed + growth.passes, features.device)
        parts = 2 if directions is None else 3 + 2 * len(self.write)
        whole, real = torch.empty((6, growth.kept), dtype=torch.int64), torch.empty((parts, growth.kept))
        token_ids, features = token_ids.contiguous(), features.contiguous()
        noise = None if growth.noise is None else growth.noise.contiguous()
        weights = (ctypes.c_float * (3 * len(growth.weights)))(*chain.from_iterable(growth.weights))
        draft = Draft(
            ctypes.pointer(self._structure),
            ctypes.pointer(output.matrix),
            address(embedding) if isinstance(embedding, Tensor) else None,
            None if isinstance(embedding, Tensor) else ctypes.pointer(embedding.matrix),
            draft_token_ids.data_ptr(),
            *map(address, directions or (None, None)),
            angles.data_ptr(),
            angles.shape[1],
            rows.data_ptr(),
            start,
            rows.shape[3],
            token_ids.data_ptr(),
            features.data_ptr(),
            committed,
            growth.width,
            growth.passes,
            growth.explored,
            growth.contrastive,
            growth.kept,
            growth.temperature,
            ctypes.addressof(weights),
            address(noise),
            whole.data_ptr(),
            real.data_ptr(),
        )
        threads = num_threads()
        memory = torch.empty(library().jakiro_grow_bytes(ctypes.byref(draft), threads), dtype=torch.uint8)
        count = library().jakiro_grow(ctypes.byref(draft), memory.data_ptr(), threads)
        return whole[:, :count], real[:, :count]
