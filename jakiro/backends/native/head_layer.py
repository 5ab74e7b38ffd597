"""Calls the C draft head on a CPU: one pass of its layer (`csrc/head.c`), or a whole draft (`csrc/draft.c`)."""

import ctypes
from collections.abc import Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn

from jakiro.backends.native.library import Draft, Head, HeadPass, Matrix, address, library, num_threads
from jakiro.backends.native.linear import BlockLinear, NativeLinear
from jakiro.heads.layers import HeadLayer, HeadOutput, fused
from jakiro.ops.cache import PassCache, RowCache
from jakiro.ops.linear import Packing
from jakiro.ops.rotary import AngleTable

# Of a pass; more are a prompt, which kernels for many rows read better
MOST_ROWS = 64


class NativeHeadLayer(nn.Module):
    """Made from a head's input projection and layer, whose weights it copies.

    Args:
        projection: the input projection.
        angles: of the head's rotary embedding.
        packing: packs matrices for compiled products.
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
        matrices = (each.matrix for each in (self.projection, self.query_key_value, self.output, self.router))
        norm = (address(self.norm), layer.post_attention_layernorm.eps)
        scaling = self.head_dim**-0.5
        self._structure = Head(*matrices, *self._matrices, *norm, scaling, *sizes, self._summed, self._contrastive)

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
        read, head = (inputs, cos, sin, mask, keys, values, *buffers), ctypes.pointer(self._structure)
        run = HeadPass(head, rows, start, keys.shape[1], *map(address, read), rows * hidden)
        library().jakiro_draft(ctypes.byref(run), threads)
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
        weights: Sequence[Sequence[float]],
        noise: Tensor | None,
        **growth: float,
    ) -> tuple[Tensor, Tensor]:
        """Reads committed tokens into the cache and grows a tree on them.

        Args:
            output: of the draft vocabulary, whose ids are `draft_token_ids`. embedding: (tokens, hidden)
                float32, see `looked_up`.
            directions: (draft vocabulary, hidden) and (hidden,) float32, the output function's rows and their mean, of
                which evidence is made; None for none.
            token_ids: (rows,) int64, at most `MOST_ROWS`; features: (rows, …) the target's one position before each.
            cache: with room for the tokens and for `width` rows a pass, which are written behind them, but not counted.
            weights: of each level, a, b and log kept, see `heads.calibration`.
            noise: (levels, draft vocabulary) float32, or None.
            growth: what the tree may be, as the fields of `Draft`: `width`, children of a node, and nodes expanded a
                level, at most; `passes` over drafted nodes, at most; nodes of the largest tree `explored`, because what
                can have no child in it is not expanded; nodes `kept` at most, root included; whether the last pass
                gives two levels, `contrastive`; and the `temperature` of the draft's distribution.

        Returns:
            Of the nodes, root first: (6, nodes) int64, tokens, parents, depths, draft passes, proposers and who
            proposed it too; (2, nodes) float32, scores and draft probabilities, and below them the evidence, see
            `drafting.experts.expert_evidence`.
        """
        committed, start = len(token_ids), cache.extend(len(token_ids))
        rows = cache.store.rows
        angles = self._angles.up_to(start + committed + growth["passes"], features.device)
        parts, kept = 2 if directions is None else 3 + 2 * len(self.write), growth["kept"]
        ints, floats = torch.empty((6, kept), dtype=torch.int64), torch.empty((parts, kept))
        token_ids, features = token_ids.contiguous(), features.contiguous()
        noise = None if noise is None else noise.contiguous()
        numbers = (ctypes.c_float * (3 * len(weights)))(*chain.from_iterable(weights))
        blocks = isinstance(embedding, BlockLinear)
        directions, mean = directions or (None, None)
        tensors = {"embedding": None if blocks else embedding, "directions": directions, "mean": mean, "noise": noise}
        tensors |= {"token_ids": draft_token_ids, "angles": angles, "rows": rows, "ids": token_ids}
        tensors |= {"features": features, "int_columns": ints, "float_columns": floats}
        draft = Draft(
            head=ctypes.pointer(self._structure),
            output=ctypes.pointer(output.matrix),
            table=ctypes.pointer(embedding.matrix) if blocks else None,
            positions=angles.shape[1],
            start=start,
            capacity=rows.shape[3],
            committed=committed,
            weights=ctypes.addressof(numbers),
            **{name: address(tensor) for name, tensor in tensors.items()},
            **growth,
        )
        threads = num_threads()
        memory = torch.empty(library().jakiro_grow_bytes(ctypes.byref(draft), threads), dtype=torch.uint8)
        count = library().jakiro_grow(ctypes.byref(draft), memory, threads)
        return ints[:, :count], floats[:, :count]
