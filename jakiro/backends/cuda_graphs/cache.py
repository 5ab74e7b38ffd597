"""KV caches of fixed shape and address: a length on the device selects the rows to write, masks select those to read.

A captured pass replays with its captured addresses and shapes, so everything that changes between steps must be stored
on the device. A `RowCache` over the same storage serves passes outside of graphs, such as the prompt's. Passes attend
to a few fixed numbers of columns, so a short context does not cost as much as the longest.
"""

import torch
from torch import Tensor

from jakiro.ops.cache import RowCache

SMALLEST_COLUMNS = 512


def columns_for(rows: int, smallest: int = SMALLEST_COLUMNS) -> int:
    """Return the number of columns that a pass over `rows` rows attends to: a power of two times the smallest."""
    columns = smallest
    while columns < rows:
        columns *= 2
    return columns


class StaticRows:
    """View of a `StaticCache` for the passes of one step, which write rows after the first `length`.

    Attributes:
        length: () int64 on the device, number of rows before the written ones.
        columns: number of columns to attend to.
    """

    is_empty = False

    def __init__(self, store: Tensor, places: Tensor, length: Tensor) -> None:
        self.length, self.columns, self._places = length, places.shape[0], places
        # Per layer: keys followed by values, and the number of written rows; then the places of the next rows
        self._layers, self._written = store.flatten(1, 2).unbind(0), [0] * store.shape[0]
        self._free = self._places + length
        self._before = self._places < length

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, **options) -> tuple[Tensor, Tensor]:
        """Write a layer's rows after the previous ones, see `RowCache.update`."""
        keys, values = self.update_both(torch.cat([key_states[0], value_states[0]]), layer_idx)
        return keys[None], values[None]

    def update_both(self, both: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """See `PassCache.update_both`."""
        store, start = self._layers[layer_idx], self._written[layer_idx]
        self._written[layer_idx] = end = start + both.shape[1]
        store.index_copy_(1, self._free[start:end], both.to(store.dtype))
        return store[:, : self.columns].chunk(2)

    def end_after(self, rows: int) -> int:
        return self.columns

    def visible(self, among: Tensor) -> Tensor:
        """Return the (rows, columns) mask of a (rows, newest) mask, see `RowCache.visible`, with a column per place."""
        rows, newest = among.shape
        end = self._written[0] + rows
        older = end - newest
        before = self._places < self.length + older if older else self._before
        return before.repeat(rows, 1).index_copy_(1, self._free[older:end], among)

    def column_positions(self, positions: Tensor) -> Tensor:
        """Return the (columns,) absolute positions; `positions` belong to the rows of the pass."""
        offsets = self._places - self.length
        new_positions = positions.index_select(0, offsets.clamp(0, positions.shape[0] - 1))
        return torch.where(offsets < 0, self._places, new_positions)


class StaticCache:
    """Keys and values of all layers in one tensor.

    Args:
        shape: layers, key/value heads, head_dim.
        capacity: number of rows to allocate.

    Attributes:
        length: () int64 on the device; set before each pass.
        rows: a `RowCache` over the same storage, for passes outside of graphs; its length is on the host.
    """

    def __init__(self, shape: tuple[int, int, int], capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        layers, kv_heads, head_dim = shape
        self.store = torch.zeros((layers, 2, kv_heads, capacity, head_dim), dtype=dtype, device=device)
        self.length = torch.zeros((), dtype=torch.int64, device=device)
        self.places = torch.arange(capacity, device=device)
        self.rows = RowCache(layers, capacity, rows=self.store)

    def following(self, offset: Tensor | None = None, columns: int | None = None) -> StaticRows:
        """Return the view of passes that write rows from `length` + `offset` on.

        Args:
            offset: () int64; None for 0.
            columns: number of columns to attend to; None for all.
        """
        length = self.length if offset is None else self.length + offset
        return StaticRows(self.store, self.places[:columns], length)

    def gather(self, rows: Tensor) -> None:
        """Move the rows `length` + rows[i] to `length` + i; rows is (count,) int64."""
        places = self.length + self.places[: rows.shape[0]]
        self.store.index_copy_(3, places, self.store.index_select(3, self.length + rows))
