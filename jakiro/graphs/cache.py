"""Caches of fixed shape and address: rows are written where a length on the device says, and masks do the slicing.

A captured pass replays with the addresses and shapes it was captured with, so everything that changes from step to step
has to lie on the device. An ordinary cache over the same storage serves passes outside of graphs, such as the prompt's.
Passes attend to a few fixed numbers of columns, so a short context does not pay for the longest.
"""

import torch
from torch import Tensor

from jakiro.kernels.cache import RowCache

SMALLEST_COLUMNS = 256


def columns_for(rows: int, smallest: int = SMALLEST_COLUMNS) -> int:
    """The number of columns, a power of two times the smallest, that a pass over so many rows attends to."""
    columns = smallest
    while columns < rows:
        columns *= 2
    return columns


class StaticRows:
    """A `StaticCache` as the passes of one step see it: rows written after the first `length`, so many columns.

    Attributes:
        length: () int64 on the device: the rows before those that are written here.
    """

    def __init__(self, store: Tensor, length: Tensor, columns: int) -> None:
        self.length, self.columns = length, columns
        self._layers, self._written = store[:, :, None].unbind(0), [0] * store.shape[0]
        self._both = store.flatten(1, 2).unbind(0)
        self._places = torch.arange(columns, device=length.device)
        self._slots: dict[tuple[int, int], Tensor] = {}

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """As `RowCache.update`: writes a layer's rows after those written before."""
        (keys, values), count = self._layers[layer_idx], key_states.shape[2]
        places = self._places_of(self._written[layer_idx], count)
        self._written[layer_idx] += count
        keys.index_copy_(2, places, key_states.to(keys.dtype))
        values.index_copy_(2, places, value_states.to(values.dtype))
        return keys[:, :, : self.columns], values[:, :, : self.columns]

    def update_both(self, both: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """As `PassCache.update_both`."""
        count, store = both.shape[1], self._both[layer_idx]
        places = self._places_of(self._written[layer_idx], count)
        self._written[layer_idx] += count
        store.index_copy_(1, places, both.to(store.dtype))
        return store[:, : self.columns].chunk(2)

    def _places_of(self, written: int, count: int) -> Tensor:
        """(count,) int64: where rows are written; made once for all layers."""
        if (written, count) not in self._slots:
            self._slots[written, count] = self.length + self._places[written : written + count]
        return self._slots[written, count]

    def visible(self, among: Tensor) -> Tensor:
        """As `RowCache.visible`, with a column for every place: (rows, newest) bool → (rows, columns) bool."""
        rows, newest = among.shape
        older = self._written[0] + rows - newest
        offsets = self._places - (self.length + older if older else self.length)
        seen = among.index_select(1, offsets.clamp(0, newest - 1)) & (offsets < newest)
        return seen | (offsets < 0)

    def column_positions(self, positions: Tensor) -> Tensor:
        """(columns,) absolute positions; `positions` are the pass's rows' own, later columns do not matter."""
        offsets = self._places - self.length
        own = positions.index_select(0, offsets.clamp(0, positions.shape[0] - 1))
        return torch.where(offsets < 0, self._places, own)


class StaticCache:
    """Keys and values of all layers in one tensor.

    Args:
        shape: layers, key/value heads, head_dim.
        capacity: rows to allocate.

    Attributes:
        length: () int64 on the device; set before each pass.
        rows: an ordinary cache over the same storage, for passes outside of graphs; it counts on the host.
    """

    def __init__(self, shape: tuple[int, int, int], capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        layers, kv_heads, head_dim = shape
        self.store = torch.zeros((layers, 2, kv_heads, capacity, head_dim), dtype=dtype, device=device)
        self.length = torch.zeros((), dtype=torch.int64, device=device)
        self.rows = RowCache(layers, capacity, rows=self.store)

    def following(self, columns: int) -> StaticRows:
        """For passes whose rows follow the length."""
        return StaticRows(self.store, self.length, columns)

    def gather(self, rows: Tensor) -> None:
        """Moves the rows length + rows[0], length + rows[1], … to length, length + 1, …; (count,) int64."""
        places = self.length + torch.arange(rows.shape[0], device=rows.device)
        self.store.index_copy_(3, places, self.store.index_select(3, self.length + rows))
