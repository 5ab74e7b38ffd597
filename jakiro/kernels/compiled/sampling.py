"""Keyed noise and choices over whole rows of the vocabulary in C, for `core/noise.py`, `core/sampling.py` and drafts.

The same numbers as the torch operations in `jakiro.core.sampling`, which are what counts; here they are one look at a
row instead of a dozen.
"""

import torch
from torch import Tensor

from jakiro.kernels.compiled.library import address, library, num_threads


def works_on(rows: Tensor) -> bool:
    """Whether the compiled functions take these rows."""
    return rows.device.type == "cpu" and rows.dtype == torch.float32 and library() is not None


def write_noise(seed: int, first: int, token_ids: Tensor, rows: Tensor) -> None:
    """Fills rows, (positions, tokens) float32, with the noise at positions first, first + 1, …"""
    library().jakiro_noise(
        seed % 2**64,
        first,
        rows.shape[0],
        token_ids.data_ptr(),
        token_ids.shape[0],
        rows.data_ptr(),
        num_threads(),
    )


def choose_rows(
    logits: Tensor,
    temperature: float,
    noise: Tensor | None = None,
    levels: Tensor | None = None,
    parents: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best token of each row of logits over temperature, plus noise where there is any.

    Args:
        logits: (rows, vocab_size) float32.
        noise: (positions, vocab_size) float32; levels: (rows,) int64, which of them is a row's.
        parents: (rows,) int64, each row's parent; None means that all rows are parents.

    Returns:
        (rows,) int64 lowest best ids, (rows,) their lead over the next, (rows,) log of the sum of e to the logits over
        the temperature, NaN at rows that are no parents.
    """
    logits = logits.contiguous()
    rows, vocab_size = logits.shape
    choices = torch.empty(rows, dtype=torch.int64, device=logits.device)
    leads, log_totals = logits.new_empty(2, rows)
    if noise is not None:
        noise, levels = noise.contiguous(), levels.contiguous()
    library().jakiro_choose(
        logits.data_ptr(),
        rows,
        vocab_size,
        temperature,
        address(noise),
        address(levels),
        address(parents),
        choices.data_ptr(),
        leads.data_ptr(),
        log_totals.data_ptr(),
        num_threads(),
    )
    return choices, leads, log_totals


def ranks_up_to(width: int) -> bool:
    """Whether `best_tokens` finds so many."""
    return 1 <= width <= library().jakiro_most_candidates()


def best_tokens(
    scores: Tensor, weight: float, noise: Tensor | None, noise_weight: float, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The best `width` tokens of each row by weight · score + noise_weight · noise, best first.

    Args:
        scores: (rows, tokens) float32, log probabilities up to a constant.
        noise: (tokens,) float32, or None.

    Returns:
        (rows, width) int64 places, log softmax of what they are ranked by, and softmax of their scores.
    """
    scores = scores.contiguous()
    rows, tokens = scores.shape
    places = torch.empty((rows, width), dtype=torch.int64, device=scores.device)
    estimates, chances = scores.new_empty(2, rows, width)
    noise = None if noise is None else noise.contiguous()
    library().jakiro_best(
        scores.data_ptr(),
        rows,
        tokens,
        weight,
        address(noise),
        noise_weight,
        width,
        places.data_ptr(),
        estimates.data_ptr(),
        chances.data_ptr(),
        num_threads(),
    )
    return places, estimates, chances


def best_of_mixture(
    logits: Tensor, log_weights: Tensor, weight: float, noise: Tensor | None, noise_weight: float, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`best_tokens` of the experts' mixture, by the log of Σ w q, not below log 1e-30.

    Args:
        logits: (experts, rows, tokens) float32. log_weights: (experts, rows), of weights that add up to 1.

    Returns:
        what `best_tokens` returns, and (rows, width) int64, which expert's w q is largest at each of the places.
    """
    logits, log_weights = logits.contiguous(), log_weights.contiguous()
    experts, rows, tokens = logits.shape
    threads = num_threads()
    places, proposers = torch.empty((2, rows, width), dtype=torch.int64, device=logits.device)
    estimates, chances = logits.new_empty(2, rows, width)
    offsets, memory = torch.empty_like(log_weights), logits.new_empty(threads * (experts + 1) * tokens)
    noise = None if noise is None else noise.contiguous()
    library().jakiro_best_of_mixture(
        logits.data_ptr(),
        log_weights.data_ptr(),
        experts,
        rows,
        tokens,
        weight,
        address(noise),
        noise_weight,
        width,
        offsets.data_ptr(),
        memory.data_ptr(),
        places.data_ptr(),
        estimates.data_ptr(),
        chances.data_ptr(),
        proposers.data_ptr(),
        threads,
    )
    return places, estimates, chances, proposers
