"""Caches of fixed shape and address: rows are written where a length on the device says, and masks do the slicing.

A captured pass replays with the addresses and shapes it was captured with, so everything that changes from step to step
has to lie on the device. The same storage also serves passes outside of graphs, such as the prompt's, through ordinary
caches over it. Passes attend to a few fixed numbers of columns, so that a short context does not pay for the longest.
"""

import torch
from torch import Tensor

from jakiro.heads.layers import HeadCache
from jakiro.target.cache import RowCache

SMALLEST_COLUMNS = 256


def columns_for(rows: int, smallest: int = SMALLEST_COLUMNS) -> int:
    """The number of columns, a power of two times the smallest, that a pass over so many rows attends to."""
    columns = smallest
    while columns < rows:
        columns *= 2
    return columns


class Window:
    """The mask of a pass with a column for every place: rows see all before `first`, and by `among` those after."""

    def __init__(self, first: Tensor, columns: int) -> None:
        self.places = torch.arange(columns, device=first.device)
        self.offsets = self.places - first

    def visible(self, among: Tensor) -> Tensor:
        """(rows, newest) bool → (rows, columns) bool."""
        newest = among.shape[1]
        seen = among.index_select(1, self.offsets.clamp(0, newest - 1)) & (self.offsets < newest)
        return seen | (self.offsets < 0)


class _StaticLayer:
    """One layer's rows: writes after the length, returns the columns that the pass attends to."""

    def __init__(self, keys: Tensor, values: Tensor, slots: Tensor, columns: int) -> None:
        self.keys, self.values, self.slots, self.columns = keys, values, slots, columns

    def update(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self.slots, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, self.slots, value_states.to(self.values.dtype))
        return self.keys[:, :, : self.columns], self.values[:, :, : self.columns]


class StaticRows:
    """One pass's view of a `StaticRowCache`: `rows` rows after its length, attending to `columns` columns.

    Attributes:
        length: () int64 on the device: the rows before the pass's own.
    """

    def __init__(self, store: Tensor, length: Tensor, rows: int, columns: int) -> None:
        self.length = length
        slots = length + torch.arange(rows, device=length.device)
        self.layers = [_StaticLayer(layer[0][None], layer[1][None], slots, columns) for layer in store]
        self._window = Window(length, columns)

    def visible(self, among: Tensor) -> Tensor:
        """(rows, rows) bool, how the pass's rows see one another → (rows, columns) bool."""
        return self._window.visible(among)

    def column_positions(self, positions: Tensor) -> Tensor:
        """(columns,) absolute positions; `positions` are the pass's rows' own, later columns do not matter."""
        offsets = self._window.offsets
        own = positions.index_select(0, offsets.clamp(0, positions.shape[0] - 1))
        return torch.where(offsets < 0, self._window.places, own)


class StaticRowCache:
    """The target's keys and values, all layers in one tensor.

    Args:
        shape: layers, key/value heads, head_dim.
        capacity: rows to allocate.

    Attributes:
        length: () int64 on the device; whoever runs a pass sets it.
    """

    def __init__(self, shape: tuple[int, int, int], capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        layers, kv_heads, head_dim = shape
        self.capacity = capacity
        self.store = torch.zeros((layers, 2, kv_heads, capacity, head_dim), dtype=dtype, device=device)
        self.length = torch.zeros((), dtype=torch.int64, device=device)

    def following(self, rows: int, columns: int) -> StaticRows:
        """For one pass over `rows` rows after the length."""
        return StaticRows(self.store, self.length, rows, columns)

    def sliced(self) -> RowCache:
        """An empty ordinary cache over the same storage."""
        return RowCache(self.store.shape[0], self.capacity, rows=self.store)

    def gather(self, rows: Tensor) -> None:
        """Moves the rows length + rows[0], length + rows[1], … to length, length + 1, …; (count,) int64."""
        places = self.length + torch.arange(rows.shape[0], device=rows.device)
        self.store.index_copy_(3, places, self.store.index_select(3, self.length + rows))


class StaticHeadCache(HeadCache):
    """The head's keys and values. Its length counts committed rows on the host, for passes outside of graphs."""

    def following(self, length: Tensor, columns: int) -> "StaticHeadRows":
        """For passes whose rows follow the first `length`, () int64 on the device."""
        return StaticHeadRows(self, length, columns)


class StaticHeadRows:
    """What passes of the head see of a `StaticHeadCache` within one step.

    Attributes:
        length: () int64 on the device: rows before those that are appended here.
    """

    def __init__(self, cache: StaticHeadCache, length: Tensor, columns: int) -> None:
        self._cache, self.length, self._columns = cache, length, columns
        self._appended = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Adds rows (1, kv_heads, rows, head_dim) and returns the columns that passes attend to."""
        count = keys.shape[2]
        slots = self.length + torch.arange(self._appended, self._appended + count, device=keys.device)
        self._cache.keys.index_copy_(2, slots, keys)
        self._cache.values.index_copy_(2, slots, values)
        self._appended += count
        return self._cache.keys[:, :, : self._columns], self._cache.values[:, :, : self._columns]

    def visible(self, among: Tensor) -> Tensor:
        """As `HeadCache.visible`, with a column for every place: (rows, columns) bool."""
        rows, drafted = among.shape
        return Window(self.length + (self._appended + rows - drafted), self._columns).visible(among)
