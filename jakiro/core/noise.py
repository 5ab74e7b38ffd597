"""Noise keyed by seed, position and token: every method gets the same entries, and so draws the same text.

Standard Gumbel noise from a counter-based hash (SplitMix64's finaliser): any entry is computed alone. The target's
choice and a draft's ranking take it in rows, a position each.
"""

import torch
from torch import Tensor

from jakiro.ops import kernels

_SPARE_ROWS = 32
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def _shift_right(x: Tensor, count: int) -> Tensor:
    """Logical shift of int64, whose own >> is arithmetic."""
    return (x >> count).bitwise_and_(2 ** (64 - count) - 1)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser in wrapping int64 arithmetic."""
    x = _shift_right(x, 30).bitwise_xor_(x).mul_(_MIX_1)
    x = _shift_right(x, 27).bitwise_xor_(x).mul_(_MIX_2)
    return _shift_right(x, 31).bitwise_xor_(x)


class KeyedNoise:
    """Standard Gumbel noise g(seed, position, token id); counter-based, so any entry is computed alone.

    Args:
        seed: a number, or a () int64 tensor that lies on the device.
    """

    def __init__(self, seed: int | Tensor) -> None:
        self.seed = seed

    def hash(self, positions: Tensor, token_ids: Tensor) -> Tensor:
        """The 64-bit hash of each entry, as int64; positions and token ids broadcast."""
        seed = self.seed
        if not isinstance(seed, Tensor):
            seed = torch.full((), seed, dtype=torch.int64, device=token_ids.device)
        return _mix(_mix(_mix(seed) + positions) + (token_ids + 1) * _GOLDEN)

    def at(self, positions: Tensor, token_ids: Tensor) -> Tensor:
        """Noise for broadcast positions and token ids (int64), as float32."""
        uniform = _shift_right(self.hash(positions, token_ids), 12).double().add_(0.5).mul_(2.0**-52)
        return uniform.log_().neg_().log_().neg_().float()

    def over(self, token_ids: Tensor) -> "NoiseRows":
        """Rows over the tokens, (vocabulary,) int64, computed when they are asked for."""
        return NoiseRows(self, token_ids)


class NoiseRows:
    """Rows of noise over some tokens at consecutive positions, each made once and kept side by side.

    The draft takes its columns from the target's rows: 0.05 ms for two, where hashing them again takes 0.5.

    Args:
        noise: computes entries, or has rows over all tokens 0, 1, … already, from which columns are taken.
        token_ids: (tokens,) int64.
    """

    def __init__(self, noise: "KeyedNoise | NoiseRows", token_ids: Tensor) -> None:
        self.noise, self.token_ids = noise, token_ids
        self._room: Tensor | None = None
        # The position of the room's first row, and the one after the last that is filled
        self._first = self._end = 0

    def rows(self, first: int, count: int) -> Tensor:
        """(count, tokens) noise at positions first … first + count − 1; rows before `first` are forgotten.

        They are a view, good until the next call.
        """
        whole = self.noise.rows(first, count) if isinstance(self.noise, NoiseRows) else None
        if not self._first <= first <= self._end:
            self._first = self._end = first
        if self._room is None or first + count - self._first > self._room.shape[0]:
            self._make_room(first, count)
        missing = self._room[self._end - self._first : first + count - self._first]
        if missing.shape[0]:
            self._fill(missing, None if whole is None else whole[-missing.shape[0] :])
            self._end = first + count
        return self._room[first - self._first : first + count - self._first]

    def _make_room(self, first: int, count: int) -> None:
        """Moves what is known from `first` on to the front, where `count` rows and a few dozen more fit."""
        known = None if self._room is None else self._room[first - self._first : self._end - self._first].clone()
        if self._room is None or self._room.shape[0] < count:
            self._room = torch.empty((count + _SPARE_ROWS, self.token_ids.shape[0]), device=self.token_ids.device)
        self._first = first
        if known is not None:
            self._room[: known.shape[0]] = known

    def _fill(self, rows: Tensor, whole: Tensor | None) -> None:
        """Writes the noise at the positions after the last known one, taken from rows over all tokens if there are."""
        if whole is not None:
            torch.index_select(whole, 1, self.token_ids, out=rows)
            return
        is_keyed = type(self.noise) is KeyedNoise and not isinstance(self.noise.seed, Tensor)
        native = kernels.current().sampling_for(rows) if is_keyed else None
        if native is not None:
            native.write_noise(self.noise.seed, self._end, self.token_ids, rows)
            return
        positions = torch.arange(self._end, self._end + rows.shape[0], device=self.token_ids.device)
        rows.copy_(self.noise.at(positions[:, None], self.token_ids))

    def over(self, token_ids: Tensor) -> "NoiseRows":
        """The same rows over some of the tokens; its own have to be 0, 1, …, so that an id is a column's index."""
        return NoiseRows(self, token_ids)


# The noise of one answer, as a drafter is given it: `over` its tokens it has rows
NoiseSource = KeyedNoise | NoiseRows
