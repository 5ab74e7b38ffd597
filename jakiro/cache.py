"""The target's key/value cache: allocated once per call, rows appended by a pass, the accepted ones kept.

It fits any transformers decoder. Every layer keeps its full length; a sliding window lives in the mask.
"""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class RowLayer(CacheLayerMixin):
    """One layer's rows, (1, kv_heads, capacity, head_dim), filled from the front."""

    is_sliding = False

    def __init__(self, capacity: int, storage_dtype: torch.dtype | None) -> None:
        super().__init__()
        self.capacity, self.storage_dtype = capacity, storage_dtype
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        for name, states in (("keys", key_states), ("values", value_states)):
            shape = (states.shape[0], states.shape[1], self.capacity, states.shape[3])
            setattr(self, name, torch.zeros(shape, dtype=self.storage_dtype or states.dtype, device=states.device))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """Appends rows and returns all rows so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0


class RowCache(Cache):
    """All layers' rows for one sequence.

    Args:
        num_layers: layers of the target.
        capacity: rows to allocate: prompt, answer and the widest tree together.
        storage_dtype: None stores what the model writes; float64 keeps an exact copy for order-independent attention.
    """

    def __init__(self, num_layers: int, capacity: int, storage_dtype: torch.dtype | None = None) -> None:
        super().__init__(layers=[RowLayer(capacity, storage_dtype) for _ in range(num_layers)])
        self.capacity = capacity

    @property
    def length(self) -> int:
        """Rows that are filled."""
        return self.layers[0].length

    def visible(self, among: Tensor) -> Tensor:
        """The mask of a pass over the next rows, which see everything cached and, by `among`, one another.

        Args:
            among: (rows, rows) bool.

        Returns:
            (rows, length + rows) bool.
        """
        cached = torch.ones((among.shape[0], self.length), dtype=torch.bool, device=among.device)
        return torch.cat([cached, among], dim=1)

    def column_positions(self, positions: Tensor) -> Tensor:
        """The absolute position of every column of `visible`; `positions` are the next rows' own."""
        return torch.cat([torch.arange(self.length, device=positions.device), positions])

    def keep(self, base: int, rows: list[int]) -> None:
        """Of the rows behind `base` keeps only base + rows[0], base + rows[1], … in this order; drops the others."""
        contiguous = rows == list(range(len(rows)))
        for layer in self.layers:
            if not contiguous:
                index = torch.tensor(rows, device=layer.keys.device) + base
                layer.keys[:, :, base : base + len(rows)] = layer.keys[:, :, index]
                layer.values[:, :, base : base + len(rows)] = layer.values[:, :, index]
            layer.length = base + len(rows)
