"""Sampling: warp the logits and choose a token with the target's keyed noise.

A sample is the argmax of warped logits plus Gumbel noise that depends only on (seed, absolute position, token id).
Plain and speculative decoding therefore write the same text at any temperature (Gumbel coupling, arXiv 2408.07978).
This requires the acceptance rule "accept if and only if equal". The module does not depend on trees or models.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.noise import KeyedNoise

PREFIX_LENGTH = 512
_BLOCK = 128


@dataclass(frozen=True, slots=True)
class DeviceSampling:
    """Sampling settings with their numbers on the device, so that one captured pass serves all values.

    Attributes:
        greedy: As in `SamplingParams`.
        temperature: () float32.
        top_p: () float64, or None to keep all tokens.
        top_k: () int64, less than the prefix length of `warp`, or None to keep all tokens.
        log_min_p: () float32, or None to keep all tokens.
    """

    greedy: bool
    temperature: Tensor
    top_p: Tensor | None = None
    top_k: Tensor | None = None
    log_min_p: Tensor | None = None

    @property
    def unfiltered(self) -> bool:
        """True if every token may be sampled, as in `SamplingParams`."""
        return not self.greedy and self.top_p is None and self.top_k is None and self.log_min_p is None


class Choice(NamedTuple):
    """The target's choice at each row.

    Attributes:
        token_ids: (rows,) int64.
        margins: (rows,) float32 gap between first and second choice after warping and noise; NaN if every token of
            the row is forbidden.
        needs_full_sort: (rows,) bool, True if the sorted prefix did not determine top-k or top-p.
    """

    token_ids: Tensor
    margins: Tensor
    needs_full_sort: Tensor


class Warped(NamedTuple):
    """The tokens that top-k, top-p and min-p keep, best first.

    Attributes:
        logits: (rows, prefix) float32, logits divided by the temperature; −inf for dropped tokens.
        token_ids: (rows, prefix) int64.
        needs_full_sort: (rows,) bool.
    """

    logits: Tensor
    token_ids: Tensor
    needs_full_sort: Tensor


def tempered(logits: Tensor, sampling: SamplingParams | DeviceSampling) -> Tensor:
    """Return float32 logits divided by the temperature; unchanged if greedy or if a temperature on the host is 1."""
    is_unchanged = sampling.greedy or (isinstance(sampling, SamplingParams) and sampling.temperature == 1)
    return logits.float() if is_unchanged else logits.float() / sampling.temperature


def prefix_for(top_k: int) -> int:
    """Return a prefix length of `warp` that is larger than top-k.

    It is PREFIX_LENGTH times a power of 2, so that CUDA graphs are captured for few lengths only.
    """
    length = PREFIX_LENGTH
    while length <= top_k:
        length *= 2
    return length


def warp(logits: Tensor, sampling: SamplingParams | DeviceSampling, prefix_length: int) -> Warped:
    """Apply temperature, top-k, top-p and min-p to the best `prefix_length` tokens of each row.

    Tokens that tie with the last kept token are kept, so that the result is a pure function of the row. If
    `prefix_length` is the vocabulary size, `needs_full_sort` is never set.

    Args:
        logits: (rows, vocab_size) raw logits, any float dtype.
        sampling: Settings with a temperature above 0.
    """
    scaled = tempered(logits, sampling)
    vocab_size = scaled.shape[-1]
    top_k, top_p, log_min_p = _filters(sampling, vocab_size)
    if isinstance(top_k, int):
        prefix_length = max(prefix_length, top_k + 1)
    prefix_length = min(prefix_length, vocab_size)
    values, token_ids = scaled.topk(prefix_length, dim=-1)
    complete = prefix_length == vocab_size
    last = values[:, -1:]
    floor = torch.full_like(last, -torch.inf)
    if isinstance(top_k, Tensor):
        floor = values.index_select(1, (top_k - 1).clamp(max=prefix_length - 1)[None])
    elif top_k is not None:
        floor = values[:, top_k - 1 : top_k]
    in_top_k = values >= floor
    of_top_k = floor
    if top_p is not None:
        kept_values = values.masked_fill(~in_top_k, -torch.inf)
        all_values = scaled if top_k is None else kept_values
        probs = (kept_values.double() - all_values.double().logsumexp(-1, keepdim=True)).exp()
        before = probs.cumsum(-1) - probs
        in_top_p = (before < top_p) & in_top_k
        in_top_p[:, 0] = True
        boundary = values.masked_fill(~in_top_p, torch.inf).amin(-1, keepdim=True)
        floor = torch.maximum(floor, boundary)
    if log_min_p is not None:
        floor = torch.maximum(floor, values[:, :1] + log_min_p)
    # If the last token of the prefix is kept, tokens after the prefix may have to be kept as well, and top-p would be
    # normalised over too few tokens. If its logit is −inf, no possible token follows the prefix.
    reached = (last >= (floor if top_k is None else of_top_k)) & (last > -torch.inf)
    needs_full_sort = torch.zeros_like(reached) if complete else reached
    return Warped(values.masked_fill(values < floor, -torch.inf), token_ids, needs_full_sort[:, 0])


def _filters(sampling: SamplingParams | DeviceSampling, vocab_size: int) -> tuple:
    """Return top-k, top-p and the log of min-p, each None if it keeps all tokens."""
    if isinstance(sampling, DeviceSampling):
        return sampling.top_k, sampling.top_p, sampling.log_min_p
    top_k = sampling.top_k if 0 < sampling.top_k < vocab_size else None
    return top_k, sampling.top_p if sampling.top_p < 1 else None, sampling.log_min_p


def choose(
    logits: Tensor,
    sampling: SamplingParams | DeviceSampling,
    noise: KeyedNoise,
    positions: Tensor,
    noise_rows: Tensor | None = None,
    levels: Tensor | None = None,
    prefix_length: int = PREFIX_LENGTH,
) -> Choice:
    """Return the choice at each row: the argmax if greedy, else the argmax of warped logits plus keyed noise.

    Args:
        logits: (rows, vocab_size) raw logits.
        positions: (rows,) int64 absolute positions of the tokens being chosen.
        noise_rows: (levels, vocab_size), noise computed by the caller, used if no token is filtered out.
        levels: (rows,) int64, the row of `noise_rows` for each row of logits.
        prefix_length: See `warp`.

    The lowest token id wins a tie.
    """
    if sampling.greedy:
        return _choose_among_all(tempered(logits, sampling))
    if sampling.unfiltered:
        if noise_rows is None:
            noise_rows = noise.at(positions[:, None], torch.arange(logits.shape[-1], device=logits.device))
            levels = torch.arange(logits.shape[0], device=logits.device)
        return _choose_among_all(tempered(logits, sampling) + noise_rows[levels])
    warped = warp(logits, sampling, prefix_length)
    scores = warped.logits + noise.at(positions[:, None], warped.token_ids)
    best = scores.amax(-1, keepdim=True)
    token_ids = torch.where(scores == best, warped.token_ids, logits.shape[-1]).amin(-1)
    return Choice(token_ids, _gap(scores), warped.needs_full_sort)


def _choose_among_all(scores: Tensor) -> Choice:
    """Return the best token of each whole row."""
    return Choice(*_best_and_gap(scores), torch.zeros_like(scores[:, 0], dtype=torch.bool))


def _best_and_gap(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest id of the largest score, and its lead over the next score, both (rows,).

    The scores are read once, in blocks: 0.8 ms for 24 rows of 49,152 on a CPU, where argmax and topk take 7.2 ms.
    """
    vocab_size = scores.shape[-1]
    if vocab_size % _BLOCK or vocab_size == _BLOCK:
        return scores.argmax(-1), _gap(scores)
    blocks = scores.unflatten(-1, (-1, _BLOCK))
    highest = blocks.amax(-1)
    block = highest.argmax(-1, keepdim=True)
    within = blocks.gather(1, block[..., None].expand(-1, -1, _BLOCK))[:, 0]
    place = within.argmax(-1, keepdim=True)
    best_in_other_blocks = highest.scatter(-1, block, -torch.inf).amax(-1)
    next_in_block = within.scatter(-1, place, -torch.inf).amax(-1)
    gap = highest.gather(-1, block)[:, 0] - torch.maximum(best_in_other_blocks, next_in_block)
    return (block * _BLOCK + place)[:, 0], gap


def _gap(scores: Tensor) -> Tensor:
    """Return the lead of the largest score of each row over the next one, (rows,)."""
    if scores.shape[-1] < 2:
        return torch.full_like(scores[:, 0], torch.inf)
    top_two = scores.topk(2, dim=-1).values
    return top_two[:, 0] - top_two[:, 1]
