"""Caches of fixed shape and address: rows are written where a length on the device says, and masks do the slicing.

A captured pass replays with the addresses and shapes it was captured with, so everything that changes from step to step
has to lie on the device. An ordinary cache over the same storage serves passes outside of graphs, such as the prompt's.
Passes attend to a few fixed numbers of columns, so a short context does not pay for the longest.
"""

import torch
from torch import Tensor

from jakiro.ops.cache import RowCache

SMALLEST_COLUMNS = 512


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

    is_empty = False

    def __init__(self, store: Tensor, places: Tensor, length: Tensor) -> None:
        self.length, self.columns, self._places = length, places.shape[0], places
        # Keys and below them values of each layer, how many rows were written there, and where the next ones go
        self._layers, self._written = store.flatten(1, 2).unbind(0), [0] * store.shape[0]
        self._free = self._places + length
        self._before = self._places < length

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """As `RowCache.update`: writes a layer's rows after those written before."""
        keys, values = self.update_both(torch.cat([key_states[0], value_states[0]]), layer_idx)
        return keys[None], values[None]

    def update_both(self, both: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """As `PassCache.update_both`."""
        store, start = self._layers[layer_idx], self._written[layer_idx]
        self._written[layer_idx] = end = start + both.shape[1]
        store.index_copy_(1, self._free[start:end], both.to(store.dtype))
        return store[:, : self.columns].chunk(2)

    def end_after(self, rows: int) -> int:
        return self.columns

    def visible(self, among: Tensor) -> Tensor:
        """As `RowCache.visible`, with a column for every place: (rows, newest) bool → (rows, columns) bool."""
        rows, newest = among.shape
        end = self._written[0] + rows
        older = end - newest
        before = self._places < self.length + older if older else self._before
        return before.repeat(rows, 1).index_copy_(1, self._free[older:end], among)

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
        self.places = torch.arange(capacity, device=device)
        self.rows = RowCache(layers, capacity, rows=self.store)

    def following(self, further: Tensor | None = None, columns: int | None = None) -> StaticRows:
        """For passes whose rows follow the length, or `further` rows after it; they attend to all columns, or so many.

        Args:
            further: () int64.
        """
        length = self.length if further is None else self.length + further
        return StaticRows(self.store, self.places[:columns], length)

    def gather(self, rows: Tensor) -> None:
        """Moves the rows length + rows[0], length + rows[1], … to length, length + 1, …; (count,) int64."""
        places = self.length + self.places[: rows.shape[0]]
        self.store.index_copy_(3, places, self.store.index_select(3, self.length + rows))
