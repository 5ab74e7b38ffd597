"""Some of a target's layers, run separately, for drafts that are made of the target's own layers.

They share the target's weights and have their own cache.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from jakiro.drafters.base import why_no_layers
from jakiro.models.target import TargetModel
from jakiro.ops import kernels
from jakiro.ops.cache import RowCache

# Up to this number of rows run in compiled code, if available; kernels for many rows are faster for prompts
_FEW_ROWS = 64


class LayerSubset:
    """Layers of a target, in order.

    Args:
        numbers: layer numbers, from 0.

    Raises:
        ValueError: the target's layers do not have Llama's shape.
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
        """Return an empty cache for one sequence."""
        layers, kv_heads, head_dim = self._decoder.cache_shape
        shape = (layers, 2, kv_heads, capacity, head_dim)
        return RowCache(layers, capacity, rows=torch.zeros(shape, dtype=self._dtype, device=self._device))

    def __call__(self, hidden: Tensor, positions: Tensor, visible: Tensor, cache: RowCache) -> Tensor:
        """Run rows that follow the rows of the cache.

        Args:
            hidden: (rows, hidden_size), embeddings or outputs of lower layers; not changed.
            positions: (rows,) int64.
            visible: (rows, length + rows) bool.

        Returns:
            (rows, hidden_size), the output of the last layer; `normed` gives the input of the output function.
        """
        rows = hidden.to(self._dtype, copy=True)
        few = rows.shape[0] <= _FEW_ROWS and self._decoder.native is not None
        return self._decoder.run(rows, positions, visible, cache, few)[0]
