"""Keyed noise and choices over whole rows of the vocabulary, by the compiled functions.

The same numbers as the torch operations in `jakiro.sampling`, which are what counts; here they are one look at a row
instead of a dozen.
"""

import torch
from torch import Tensor

from jakiro.native.library import library


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
        torch.get_num_threads(),
    )


def choose_rows(
    logits: Tensor, temperature: float, noise: Tensor | None = None, levels: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The best token of each row of logits over temperature, plus noise where there is any.

    Args:
        logits: (rows, vocab_size) float32.
        noise: (positions, vocab_size) float32; levels: (rows,) int64, which of them is a row's.

    Returns:
        (rows,) int64 lowest best ids, (rows,) their lead over the next, (rows,) log of the sum of e to the logits over
        the temperature.
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
        None if noise is None else noise.data_ptr(),
        None if noise is None else levels.data_ptr(),
        choices.data_ptr(),
        leads.data_ptr(),
        log_totals.data_ptr(),
        torch.get_num_threads(),
    )
    return choices, leads, log_totals
