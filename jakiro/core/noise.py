"""Gumbel noise keyed by seed, position and token id, so that every method samples the same text.

The noise is a counter-based hash (the finalizer of SplitMix64), so that any entry can be computed separately. The
target's choice and the ranking of candidates read it in rows, one per position.
"""

import torch
from torch import Tensor

from jakiro.ops import kernels

_SPARE_ROWS = 32
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def _shift_right(x: Tensor, count: int) -> Tensor:
    """Shift int64 right and fill with zeros; the operator >> would fill with copies of the sign bit."""
    return (x >> count).bitwise_and_(2 ** (64 - count) - 1)


def _mix(x: Tensor) -> Tensor:
    """Apply the finalizer of SplitMix64 in wrapping int64 arithmetic."""
    x = _shift_right(x, 30).bitwise_xor_(x).mul_(_MIX_1)
    x = _shift_right(x, 27).bitwise_xor_(x).mul_(_MIX_2)
    return _shift_right(x, 31).bitwise_xor_(x)


class KeyedNoise:
    """Standard Gumbel noise g(seed, position, token id); counter-based, so any entry is computed separately.

    Args:
        seed: A number, or a () int64 tensor on the device.
    """

    def __init__(self, seed: int | Tensor) -> None:
        self.seed = seed

    def hash(self, positions: Tensor, token_ids: Tensor) -> Tensor:
        """Return the 64-bit hash of each entry as int64; positions and token ids broadcast."""
        seed = self.seed
        if not isinstance(seed, Tensor):
            seed = torch.full((), seed, dtype=torch.int64, device=token_ids.device)
        return _mix(_mix(_mix(seed) + positions) + (token_ids + 1) * _GOLDEN)

    def at(self, positions: Tensor, token_ids: Tensor) -> Tensor:
        """Return float32 noise for broadcast positions and token ids (int64)."""
        uniform = _shift_right(self.hash(positions, token_ids), 12).double().add_(0.5).mul_(2.0**-52)
        return uniform.log_().neg_().log_().neg_().float()

    def over(self, token_ids: Tensor) -> "NoiseRows":
        """Return lazily computed rows over these tokens, (tokens,) int64."""
        return NoiseRows(self, token_ids)


class NoiseRows:
    """Rows of noise over some tokens at consecutive positions; each row is computed once.

    The draft selects its columns from the target's rows: 0.05 ms for two rows, where hashing again takes 0.5 ms.

    Args:
        noise: A `KeyedNoise`, which computes the entries, or `NoiseRows` over all tokens 0, 1, …, from which columns
            are copied.
        token_ids: (tokens,) int64.
    """

    def __init__(self, noise: "KeyedNoise | NoiseRows", token_ids: Tensor) -> None:
        self.noise, self.token_ids = noise, token_ids
        self._buffer = torch.empty((0, token_ids.shape[0]), device=token_ids.device)
        # Position of the buffer's first row, and the position after its last filled row
        self._start = self._end = 0

    def rows(self, first: int, count: int) -> Tensor:
        """Return the noise at positions first … first + count − 1; rows before `first` may be discarded.

        Returns:
            (count, tokens) float32, a view that is valid until the next call.
        """
        source = self.noise.rows(first, count) if isinstance(self.noise, NoiseRows) else None
        if not self._start <= first <= self._end:
            self._start = self._end = first
        if first + count - self._start > len(self._buffer):
            self._move_to_front(first, count)
        missing = self._buffer[self._end - self._start : first + count - self._start]
        if len(missing):
            self._fill(missing, None if source is None else source[-len(missing) :])
            self._end = first + count
        return self._buffer[first - self._start : first + count - self._start]

    def _move_to_front(self, first: int, count: int) -> None:
        """Move the filled rows from `first` on to the front of a buffer with at least `count` rows."""
        filled = self._buffer[first - self._start : self._end - self._start].clone()
        if len(self._buffer) < count:
            self._buffer = self._buffer.new_empty((count + _SPARE_ROWS, self.token_ids.shape[0]))
        self._buffer[: len(filled)] = filled
        self._start = first

    def _fill(self, rows: Tensor, source: Tensor | None) -> None:
        """Write the noise at the positions from `_end` on.

        Args:
            rows: (positions, tokens), the rows to write.
            source: (positions, all tokens), the same positions over all tokens, or None.
        """
        if source is not None:
            torch.index_select(source, 1, self.token_ids, out=rows)
            return
        is_keyed = type(self.noise) is KeyedNoise and not isinstance(self.noise.seed, Tensor)
        native = kernels.current().sampling_for(rows) if is_keyed else None
        if native is not None:
            native.write_noise(self.noise.seed, self._end, self.token_ids, rows)
            return
        positions = torch.arange(self._end, self._end + len(rows), device=self.token_ids.device)
        rows.copy_(self.noise.at(positions[:, None], self.token_ids))

    def over(self, token_ids: Tensor) -> "NoiseRows":
        """Return these rows over some of the tokens; requires that this object covers the tokens 0, 1, …"""
        return NoiseRows(self, token_ids)


# The noise of one request as a drafter receives it; `over` returns rows
NoiseSource = KeyedNoise | NoiseRows
