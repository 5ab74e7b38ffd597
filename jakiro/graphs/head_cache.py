"""The head's cache at fixed addresses: rows are written where a length on the device says, masks do the slicing."""

import torch
from torch import Tensor

from jakiro.graphs.cache import Window
from jakiro.heads.layers import HeadCache


class StaticHeadCache(HeadCache):
    """The head's keys and values. Its length counts committed rows on the host, for passes outside of graphs."""

    def behind(self, length: Tensor, columns: int) -> "StaticHeadRows":
        """For passes whose rows begin behind `length`, () int64 on the device."""
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
