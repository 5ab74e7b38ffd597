"""Compiled draft heads on a CPU: one pass of a head's layer (`csrc/head.c`), or a whole draft tree (`csrc/draft.c`)."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
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

# Rows of a compiled pass at most: torch's kernels for many rows read a prompt faster
MOST_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class GrowthLimits:
    """Bounds of a tree; the fields of the same names in `Draft`.

    Attributes:
        width: Children of a node and expanded nodes of a level, at most.
        passes: Passes over drafted nodes, at most.
        explored: Nodes of the largest tree. Nodes that cannot have a child in it are not expanded.
        contrastive: Whether the last pass gives two levels.
        kept: Nodes of the result at most, root included.
        temperature: Temperature of the draft's distribution.
    """

    width: int
    passes: int
    explored: int
    contrastive: bool
    kept: int
    temperature: float


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The inputs of `NativeHeadLayer.grow`.

    Attributes:
        output: Output layer of the draft vocabulary.
        embedding: (vocab_size, hidden) float32 tensor, or a `BlockLinear`.
        draft_token_ids: (draft vocabulary,) int64, the token of each output.
        directions: Rows of the output function, (draft vocabulary, hidden), and their mean, (hidden,), both float32,
            from which evidence is computed; None for no evidence.
        token_ids: (rows,) int64 committed tokens, at most `MOST_ROWS`; the last one is the root.
        features: (rows, feature_size), the target's features one position before each token.
        cache: With room for the tokens and for `width` rows per pass, which are written after them but not counted.
        weights: a, b and log kept of each level, see `jakiro.heads.calibration`.
        noise: (levels, draft vocabulary) float32, or None.
        limits: Bounds of the tree.
    """

    output: NativeLinear
    embedding: Tensor | BlockLinear
    draft_token_ids: Tensor
    directions: tuple[Tensor, Tensor] | None
    token_ids: Tensor
    features: Tensor
    cache: RowCache
    weights: Sequence[Sequence[float]]
    noise: Tensor | None
    limits: GrowthLimits


class NativeHeadLayer(nn.Module):
    """The layer of a `LayerHead` in one call, made from a head's input projection and layer, whose weights it copies.

    Args:
        projection: Input projection.
        layer: Layer that is not packed yet.
        angles: Angles of the head's rotary embedding.
        packing: Packs matrices for compiled products.
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
        self._summed, self._contrastive = len(experts[0]) == 3, self.router.out_features > len(experts)
        array = Matrix * len(experts)
        self._matrices = [array(*(linear.matrix for linear in part)) for part in (self.read, self.write)]
        self._structure = Head(
            projection=self.projection.matrix,
            query_key_value=self.query_key_value.matrix,
            output=self.output.matrix,
            router=self.router.matrix,
            read=self._matrices[0],
            write=self._matrices[1],
            norm=address(self.norm),
            eps=layer.post_attention_layernorm.eps,
            scaling=self.head_dim**-0.5,
            hidden=self.hidden_size,
            inner=self.inner_size,
            experts=len(experts),
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            summed=self._summed,
            contrastive=self._contrastive,
        )

    @staticmethod
    def takes(embeddings: Tensor, cache: PassCache | None) -> bool:
        """Return whether a pass has the few rows of a draft; torch's kernels for many rows read a prompt faster."""
        return isinstance(cache, RowCache) and embeddings.shape[0] == 1 and embeddings.shape[1] <= MOST_ROWS

    @staticmethod
    def fits(layer: HeadLayer) -> bool:
        """Return whether the experts' gates, if there are any, fill whole panels of weights."""
        linears = list(layer.mlp_moe.experts[0].children())
        return len(linears) == 2 or linears[-1].in_features % library().jakiro_panel() == 0

    def forward(
        self, embeddings: Tensor, features: Tensor, positions: Tensor, mask: Tensor | None, cache: RowCache
    ) -> HeadOutput:
        """Run one pass; arguments as in `LayerHead.forward`, for rows that `takes` accepts."""
        rows, start = embeddings.shape[1], cache.extend(embeddings.shape[1])
        (keys, values), end = cache.store.rows[0], cache.length
        if mask is None:
            mask = torch.arange(end) <= torch.arange(start, end)[:, None]
        mask = mask.reshape(rows, end).contiguous()
        inputs = torch.cat([embeddings[0], features[0]], dim=-1)
        cos, sin = self._angles.at(positions[0], end)
        buffers = self._pass_buffers(inputs, rows, end)
        tensors = (inputs, cos, sin, mask, keys, values, *buffers)
        head, threads = ctypes.pointer(self._structure), num_threads()
        run = HeadPass(head, rows, start, keys.shape[1], *map(address, tensors), rows * self.hidden_size)
        library().jakiro_draft(ctypes.byref(run), threads)
        return self._output(rows, buffers)

    def _pass_buffers(self, inputs: Tensor, rows: int, end: int) -> tuple[Tensor, ...]:
        """Return the float buffers of a pass in the order of `HeadPass`, from `stream` to `memory`."""
        experts, hidden = len(self.write), self.hidden_size
        widths = [hidden, (self.heads + 2 * self.kv_heads) * self.head_dim, self.heads * self.head_dim]
        widths += [experts * self.inner_size, experts * hidden, self.router.out_features, hidden, hidden]
        memory = num_threads() * library().jakiro_head_floats(ctypes.byref(self._structure), rows, end)
        sizes = [*(rows * width for width in widths), memory]
        return inputs.new_empty(sum(sizes)).split(sizes)

    def _output(self, rows: int, buffers: tuple[Tensor, ...]) -> HeadOutput:
        stream, _, _, _, outputs, router, mixed, contrast, _ = buffers
        experts, hidden, router_rows = len(self.write), self.hidden_size, self.router.out_features
        stream, outputs = stream.view(1, rows, hidden), outputs.view(experts, 1, rows, hidden)
        weights, pair = router.view(1, rows, router_rows).split([experts, router_rows - experts], dim=-1)
        features = mixed.view(1, rows, hidden) if self._summed else stream + outputs
        if not self._contrastive:
            return HeadOutput(features, None, stream, outputs, weights, None)
        return HeadOutput(features, contrast.view(1, rows, hidden), stream, outputs, weights, pair)

    def grow(self, growth: Growth) -> tuple[Tensor, Tensor]:
        """Read committed tokens into the cache and grow a tree after them.

        Returns:
            (6, nodes) int64, the root first: tokens, parents, depths, draft passes, proposers and other proposers.
            (columns, nodes) float32: scores, draft probabilities, evidence (see `jakiro.heads.jakiro.evidence`).
        """
        cache, limits = growth.cache, growth.limits
        committed, start = len(growth.token_ids), cache.extend(len(growth.token_ids))
        angles = self._angles.grow_to(start + committed + limits.passes, growth.features.device)
        num_columns = 2 if growth.directions is None else 3 + 2 * len(self.write)
        int_columns = torch.empty((6, limits.kept), dtype=torch.int64)
        float_columns = torch.empty((num_columns, limits.kept))
        has_blocks = isinstance(growth.embedding, BlockLinear)
        directions, mean = growth.directions or (None, None)
        # Held until the call returns: the structure contains addresses only
        tensors = {
            "embedding": None if has_blocks else growth.embedding,
            "token_ids": growth.draft_token_ids,
            "directions": directions,
            "mean": mean,
            "angles": angles,
            "rows": cache.store.rows,
            "ids": growth.token_ids.contiguous(),
            "features": growth.features.contiguous(),
            "noise": None if growth.noise is None else growth.noise.contiguous(),
            "int_columns": int_columns,
            "float_columns": float_columns,
        }
        weights = (ctypes.c_float * (3 * len(growth.weights)))(*chain.from_iterable(growth.weights))
        draft = Draft(
            head=ctypes.pointer(self._structure),
            output=ctypes.pointer(growth.output.matrix),
            table=ctypes.pointer(growth.embedding.matrix) if has_blocks else None,
            positions=angles.shape[1],
            start=start,
            capacity=cache.store.rows.shape[3],
            committed=committed,
            weights=ctypes.addressof(weights),
            **{name: address(tensor) for name, tensor in tensors.items()},
            **vars(limits),
        )
        threads = num_threads()
        memory = torch.empty(library().jakiro_grow_bytes(ctypes.byref(draft), threads), dtype=torch.uint8)
        count = library().jakiro_grow(ctypes.byref(draft), memory, threads)
        return int_columns[:, :count], float_columns[:, :count]
