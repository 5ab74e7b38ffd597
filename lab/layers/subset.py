"""Some of a target's layers, run by themselves: what drafts run that are made of the target (layers left out, or the
first ones alone). They share its weights; keys and values are the draft's own, in a cache of its own.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from jakiro.drafters.base import why_no_layers
from jakiro.models.target import TargetModel
from jakiro.ops import kernels
from jakiro.ops.cache import RowCache

# So few rows run in compiled code, where there is any; a prompt is better read by kernels for many rows
_FEW_ROWS = 64


class LayerSubset:
    """Layers of a target, in their order.

    Args:
        numbers: of the layers, counted from 0.

    Raises:
        ValueError: the target's layers are not of Llama's shape.
    """

    def __init__(self, target: TargetModel, numbers: Sequence[int]) -> None:
        if target.fused is None:
            raise ValueError(why_no_layers(target))
        self._decoder, self._dtype, self._device = copy.copy(target.fused), target.dtype, target.device
        fused = self._decoder
        fused.layers = [fused.layers[number] for number in numbers]
        if fused.native is not None:
            heads = fused.num_heads, fused.num_kv_heads, fused.head_dim
            fused.native = kernels.current().decoder(fused.layers, heads, fused.scaling)
        self.normed = self._decoder.normed

    def new_cache(self, capacity: int) -> RowCache:
        """An empty cache for one sequence."""
        layers, kv_heads, head_dim = self._decoder.cache_shape
        shape = (layers, 2, kv_heads, capacity, head_dim)
        return RowCache(layers, capacity, rows=torch.zeros(shape, dtype=self._dtype, device=self._device))

    def __call__(self, hidden: Tensor, positions: Tensor, visible: Tensor, cache: RowCache) -> Tensor:
        """Runs rows that follow the cache's.

        Args:
            hidden: (rows, hidden_size), embeddings or what layers below gave; left as they are.
            positions: (rows,) int64. visible: (rows, length + rows) bool.

        Returns:
            (rows, hidden_size), what the last of these layers gives; `normed` is what the output function reads of it.
        """
        rows = hidden.to(self._dtype, copy=True)
        few = rows.shape[0] <= _FEW_ROWS and self._decoder.native is not None
        return self._decoder.run(rows, positions, visible, cache, few)[0]
