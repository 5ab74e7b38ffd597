"""Choosing tokens: warping, noise keyed by seed and position, and the choice itself.

A sample is the argmax of warped logits plus Gumbel noise that depends on (seed, absolute position, token id) and on
nothing else, so plain and speculative decoding write the same text at any temperature (Gumbel coupling, arXiv
2408.07978). Exact only together with the rule "accept iff equal". Knows nothing of trees and models.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.native import sampling as native

PREFIX_LENGTH = 512
_BLOCK = 128
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


@dataclass(frozen=True, slots=True)
class HeldSampling:
    """Sampling settings whose temperature lies on the device, so that one captured pass serves every temperature.

    Attributes:
        greedy, top_p, top_k: as in `SamplingParams`.
        temperature: () float32.
    """

    greedy: bool
    temperature: Tensor
    top_p: float
    top_k: int


class KeyedNoise:
    """Standard Gumbel noise g(seed, position, token id); counter-based, so any entry is computed alone.

    Args:
        seed: a number, or a () int64 tensor that lies on the device.
    """

    def __init__(self, seed: int | Tensor) -> None:
        self.seed = seed

    def hash(self, positions: Tensor, token_ids: Tensor) -> Tensor:
        """The 64-bit hash behind each entry, as int64; positions and token ids broadcast."""
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
    """Rows of noise over one vocabulary at consecutive positions, each computed once and kept side by side."""

    def __init__(self, noise: KeyedNoise, token_ids: Tensor) -> None:
        self.noise, self.token_ids = noise, token_ids
        self._room: Tensor | None = None
        # The position of the room's first row, and the one behind the last that is filled
        self._first = self._end = 0

    def rows(self, first: int, count: int) -> Tensor:
        """(count, vocabulary) noise at positions first … first + count − 1; rows before `first` are forgotten.

        They are a view, good until the next call.
        """
        if not self._first <= first <= self._end:
            self._first = self._end = first
        if self._room is None or first + count - self._first > self._room.shape[0]:
            self._make_room(first, count)
        missing = self._room[self._end - self._first : first + count - self._first]
        if missing.shape[0]:
            self._fill(missing)
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

    def _fill(self, rows: Tensor) -> None:
        """The noise at the positions behind the last known one."""
        if type(self.noise) is KeyedNoise and not isinstance(self.noise.seed, Tensor) and native.works_on(rows):
            native.write_noise(self.noise.seed, self._end, self.token_ids, rows)
            return
        positions = torch.arange(self._end, self._end + rows.shape[0], device=self.token_ids.device)
        rows.copy_(self.noise.at(positions[:, None], self.token_ids))

    def over(self, token_ids: Tensor) -> "NoiseColumns":
        """The same rows over some of the tokens; theirs have to be 0, 1, …, so that an id is a column's index."""
        return NoiseColumns(self, token_ids)


@dataclass(frozen=True, slots=True)
class NoiseColumns:
    """Some tokens' columns of rows that are kept for the whole vocabulary anyway."""

    whole: NoiseRows
    token_ids: Tensor

    def rows(self, first: int, count: int) -> Tensor:
        """(count, tokens), as `NoiseRows.rows`."""
        rows = self.whole.rows(first, count)
        if native.works_on(rows):
            return native.columns_of(rows, self.token_ids)
        return rows.index_select(1, self.token_ids)


class Choice(NamedTuple):
    """What the target chooses at each row.

    Attributes:
        token_ids: (rows,) int64.
        margins: (rows,) float32 gap between first and second choice after warping and noise.
        prefix_too_short: (rows,) bool; True where the sorted prefix did not settle top-k or top-p.
        log_totals: (rows,) float32 log of the sum of e to the tempered logits, where choosing told it too.
    """

    token_ids: Tensor
    margins: Tensor
    prefix_too_short: Tensor
    log_totals: Tensor | None = None


class Warped(NamedTuple):
    """The tokens that top-k and top-p keep, best first.

    Attributes:
        logits: (rows, prefix) float32 logits over the temperature, −inf where a token is dropped.
        token_ids: (rows, prefix) int64.
        prefix_too_short: (rows,) bool.
    """

    logits: Tensor
    token_ids: Tensor
    prefix_too_short: Tensor


def tempered(logits: Tensor, sampling: SamplingParams | HeldSampling) -> Tensor:
    """float32 logits over the temperature; as they are when greedy, or where the host knows that it is 1."""
    as_they_are = sampling.greedy or (isinstance(sampling, SamplingParams) and sampling.temperature == 1)
    return logits.float() if as_they_are else logits.float() / sampling.temperature


def adds_whole_rows(sampling: SamplingParams | HeldSampling) -> bool:
    """Whether choosing adds noise to every token's logit: without top-k and top-p nothing is sorted out before."""
    return not sampling.greedy and sampling.top_k == 0 and sampling.top_p >= 1


def warp(logits: Tensor, sampling: SamplingParams | HeldSampling, prefix_length: int) -> Warped:
    """Temperature, then top-k, then top-p, evaluated on the best `prefix_length` tokens of each row.

    Tokens that tie with the last kept one stay in, so the result is a pure function of the row. With
    `prefix_length` = vocabulary size the flag is never set.

    Args:
        logits: (rows, vocab_size) raw logits, any float dtype.
        sampling: temperature above 0.
    """
    scaled = tempered(logits, sampling)
    vocab_size = scaled.shape[-1]
    prefix_length = min(max(prefix_length, sampling.top_k + 1), vocab_size)
    values, token_ids = scaled.topk(prefix_length, dim=-1)
    complete = prefix_length == vocab_size
    last = values[:, -1:]
    floor = torch.full_like(last, -torch.inf)
    if 0 < sampling.top_k < vocab_size:
        floor = values[:, sampling.top_k - 1 : sampling.top_k]
    in_top_k = values >= floor
    # Ties with the last of the top k may go on behind the prefix; top-p would then be normalised over too few.
    unsettled = (last >= floor) & (sampling.top_k > 0)
    if sampling.top_p < 1:
        kept = values.masked_fill(~in_top_k, -torch.inf)
        whole = scaled if sampling.top_k == 0 else kept
        probs = (kept.double() - whole.double().logsumexp(-1, keepdim=True)).exp()
        before = probs.cumsum(-1) - probs
        in_top_p = (before < sampling.top_p) & in_top_k
        in_top_p[:, 0] = True
        boundary = values.masked_fill(~in_top_p, torch.inf).amin(-1, keepdim=True)
        floor = torch.maximum(floor, boundary)
    too_short = torch.zeros_like(unsettled) if complete else unsettled | (last >= floor)
    return Warped(values.masked_fill(values < floor, -torch.inf), token_ids, too_short[:, 0])


def choose(
    logits: Tensor,
    sampling: SamplingParams | HeldSampling,
    noise: KeyedNoise,
    positions: Tensor,
    noise_rows: Tensor | None = None,
    levels: Tensor | None = None,
    prefix_length: int = PREFIX_LENGTH,
) -> Choice:
    """The target's choice at each row: argmax when greedy, else argmax of warped logits plus keyed noise.

    Args:
        logits: (rows, vocab_size) raw logits.
        positions: (rows,) int64 absolute positions of the tokens being chosen.
        noise_rows: (levels, vocab_size) noise where the caller has it, used without top-k/top-p; levels: (rows,) int64,
            which of them is a row's.

    The lowest id wins a tie.
    """
    if sampling.greedy:
        return _choose_among_all(logits, sampling)
    if adds_whole_rows(sampling):
        if noise_rows is None:
            noise_rows = noise.at(positions[:, None], torch.arange(logits.shape[-1], device=logits.device))
            levels = torch.arange(logits.shape[0], device=logits.device)
        return _choose_among_all(logits, sampling, noise_rows, levels)
    warped = warp(logits, sampling, prefix_length)
    scores = warped.logits + noise.at(positions[:, None], warped.token_ids)
    best = scores.amax(-1, keepdim=True)
    token_ids = torch.where(scores == best, warped.token_ids, logits.shape[-1]).amin(-1)
    return Choice(token_ids, _gap(scores), warped.prefix_too_short)


def _choose_among_all(
    logits: Tensor,
    sampling: SamplingParams | HeldSampling,
    noise_rows: Tensor | None = None,
    levels: Tensor | None = None,
) -> Choice:
    """The best of each whole row, with noise where there is any."""
    if isinstance(sampling, SamplingParams) and native.works_on(logits):
        temperature = 1.0 if sampling.greedy else sampling.temperature
        token_ids, leads, log_totals = native.choose_rows(logits, temperature, noise_rows, levels)
        return Choice(token_ids, leads, _never(logits), log_totals)
    scores = tempered(logits, sampling)
    if noise_rows is not None:
        scores = scores + noise_rows[levels]
    return Choice(*_best_and_gap(scores), _never(scores))


def _best_and_gap(scores: Tensor) -> tuple[Tensor, Tensor]:
    """(rows,) the lowest id of the largest score, and its lead over the next, from one look at all scores."""
    vocab_size = scores.shape[-1]
    if vocab_size % _BLOCK or vocab_size == _BLOCK:
        return scores.argmax(-1), _gap(scores)
    blocks = scores.unflatten(-1, (-1, _BLOCK))
    highest = blocks.amax(-1)
    block = highest.argmax(-1, keepdim=True)
    within = blocks.gather(1, block[..., None].expand(-1, -1, _BLOCK))[:, 0]
    place = within.argmax(-1, keepdim=True)
    elsewhere = highest.scatter(-1, block, -torch.inf).amax(-1)
    beside = within.scatter(-1, place, -torch.inf).amax(-1)
    gap = highest.gather(-1, block)[:, 0] - torch.maximum(elsewhere, beside)
    return (block * _BLOCK + place)[:, 0], gap


def _gap(scores: Tensor) -> Tensor:
    if scores.shape[-1] < 2:
        return torch.full_like(scores[:, 0], torch.inf)
    top_two = scores.topk(2, dim=-1).values
    return top_two[:, 0] - top_two[:, 1]


def _never(scores: Tensor) -> Tensor:
    return torch.zeros_like(scores[:, 0], dtype=torch.bool)
