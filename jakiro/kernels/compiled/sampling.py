"""Keyed noise, verification and candidates in C, for `core/noise.py`, `core/verify.py` and drafts.

The same numbers as the torch operations there, which are what counts; here they are one look at a row of the vocabulary
instead of a dozen.
"""

import math

import torch
from torch import Tensor

from jakiro.kernels.compiled.library import Filters, address, library, num_threads


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


def filters(top_k: int, top_p: float, log_min_p: float | None, seed: int, first: int) -> Filters:
    """What drops tokens before one is drawn; noise is keyed by the seed and the position, `first` after the root."""
    return Filters(top_k, top_p, -math.inf if log_min_p is None else log_min_p, seed, first)


def verify(
    logits: Tensor,
    temperature: float,
    noise: Tensor | None,
    dropped: Filters | None,
    token_ids: Tensor,
    parents: Tensor,
    depths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Compares a tree with the choices among logits over the temperature, plus noise where there is any.

    Args:
        logits: (num_nodes, vocab_size) float32. noise: (levels, vocab_size) float32, a row for each depth.
        dropped: by which tokens are dropped, and noise is added to the others; None keeps all.
        token_ids, parents, depths: of the tree, see `NodeColumns`.

    Returns:
        `choices`, `margins`, `target_probs` and `on_path` of `jakiro.core.verify.Verification`, and its `end`.
    """
    logits, token_ids, parents, depths = (each.contiguous() for each in (logits, token_ids, parents, depths))
    noise = None if noise is None else noise.contiguous()
    rows, vocab_size = logits.shape
    choices, on_path = torch.empty_like(token_ids), torch.empty_like(token_ids, dtype=torch.bool)
    margins, target_probs = logits.new_empty((2, rows)).unbind()
    threads = num_threads()
    needed = library().jakiro_verify_bytes(rows, vocab_size if dropped else 0, threads)
    memory = logits.new_empty(needed, dtype=torch.uint8)
    end = library().jakiro_verify(
        logits.data_ptr(),
        rows,
        vocab_size,
        temperature,
        address(noise),
        dropped,
        token_ids.data_ptr(),
        parents.data_ptr(),
        depths.data_ptr(),
        choices.data_ptr(),
        margins.data_ptr(),
        target_probs.data_ptr(),
        on_path.data_ptr(),
        memory.data_ptr(),
        threads,
    )
    return choices, margins, target_probs, on_path, end


def ranks_up_to(width: int) -> bool:
    """Whether `best_tokens` finds so many."""
    return 1 <= width <= library().jakiro_most_candidates()


def best_tokens(
    scores: Tensor, weight: float, noise: Tensor | None, noise_weight: float, width: int, chances: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The best `width` tokens of each row by weight · score + noise_weight · noise, best first.

    Args:
        scores: (rows, tokens) float32, log probabilities up to a constant.
        noise: (tokens,) float32, or None.

    Returns:
        (rows, width) int64 places, log softmax of what they are ranked by, and where `chances` are asked for, which
        takes a second look at the vocabulary, softmax of their scores.
    """
    scores = scores.contiguous()
    rows, tokens = scores.shape
    places = torch.empty((rows, width), dtype=torch.int64, device=scores.device)
    estimates = scores.new_empty(rows, width)
    softmax = scores.new_empty(rows, width) if chances else None
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
        address(softmax),
        num_threads(),
    )
    return places, estimates, softmax


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
