"""Keyed noise, verification and candidates in C, for `core/noise.py`, `core/verify.py` and drafts.

The results equal those of the torch operations there, which are the reference. C reads a row of the vocabulary once,
torch a dozen times.
"""

import math

import torch
from torch import Tensor

from jakiro.backends.native.library import Filters, library, num_threads


def write_noise(seed: int, first: int, token_ids: Tensor, rows: Tensor) -> None:
    """Fill rows, (positions, tokens) float32, with the noise at positions first, first + 1, …"""
    library().jakiro_noise(seed % 2**64, first, len(rows), token_ids, len(token_ids), rows, num_threads())


def filters(top_k: int, top_p: float, log_min_p: float | None, seed: int, first: int) -> Filters:
    """Return the filters of sampling; noise is keyed by the seed and the position, which is `first` after the root."""
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
    """Compare a tree with the target's choices, the largest logits / temperature + noise.

    Args:
        logits: (num_nodes, vocab_size) float32.
        temperature: Divisor of the logits.
        noise: (levels, vocab_size) float32, a row for each depth, or None.
        dropped: Filters that drop tokens and add noise to the others; None keeps all tokens.
        token_ids: Column of the tree, see `NodeColumns`.
        parents: Column of the tree.
        depths: Column of the tree.

    Returns:
        `choices`, `margins`, `target_probs` and `on_path` of `jakiro.core.verify.Verification`, and its `end`.
    """
    logits, *tree = (tensor.contiguous() for tensor in (logits, token_ids, parents, depths))
    noise = None if noise is None else noise.contiguous()
    rows, vocab_size = logits.shape
    choices, on_path = torch.empty_like(tree[0]), torch.empty_like(tree[0], dtype=torch.bool)
    results, threads = (choices, *logits.new_empty((2, rows)).unbind(), on_path), num_threads()
    needed = library().jakiro_verify_bytes(rows, vocab_size if dropped else 0, threads)
    memory = logits.new_empty(needed, dtype=torch.uint8)
    end = library().jakiro_verify(
        logits, rows, vocab_size, temperature, noise, dropped, *tree, *results, memory, threads
    )
    return *results, end


def ranks_up_to(width: int) -> bool:
    """Return whether `best_tokens` supports this width."""
    return 1 <= width <= library().jakiro_most_candidates()


def best_tokens(
    scores: Tensor, weight: float, noise: Tensor | None, noise_weight: float, width: int, chances: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the best `width` tokens of each row by weight · score + noise_weight · noise, best first.

    Args:
        scores: (rows, tokens) float32, log probabilities up to a constant.
        weight: Factor of the scores.
        noise: (tokens,) float32, or None.
        noise_weight: Factor of the noise.
        width: Number of tokens.
        chances: Whether to return the softmax of the scores, which reads the vocabulary a second time.

    Returns:
        (rows, width) each: int64 indices, log softmax of the ranked values, and softmax of the scores or None.
    """
    scores = scores.contiguous()
    places, estimates, softmax = _room(scores, width)
    results = (places, estimates, softmax if chances else None)
    noise = None if noise is None else noise.contiguous()
    library().jakiro_best(scores, *scores.shape, weight, noise, noise_weight, width, *results, num_threads())
    return results


def best_of_mixture(
    logits: Tensor, log_weights: Tensor, weight: float, noise: Tensor | None, noise_weight: float, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `best_tokens` of the experts' mixture, with the score log Σ w q, at least log 1e-30.

    Args:
        logits: (experts, rows, tokens) float32.
        log_weights: (experts, rows), logs of weights with sum 1.
        weight: Factor of the scores.
        noise: (tokens,) float32, or None.
        noise_weight: Factor of the noise.
        width: Number of tokens.

    Returns:
        The results of `best_tokens`, and (rows, width) int64, the expert with the largest w q at each index.
    """
    logits, log_weights = logits.contiguous(), log_weights.contiguous()
    experts, _, tokens = logits.shape
    threads, results = num_threads(), _room(logits[0], width)
    results = (*results, torch.empty_like(results[0]))
    offsets, memory = torch.empty_like(log_weights), logits.new_empty(threads * (experts + 1) * tokens)
    noise = None if noise is None else noise.contiguous()
    inputs = (logits, log_weights, *logits.shape, weight, noise, noise_weight, width)
    library().jakiro_best_of_mixture(*inputs, offsets, memory, *results, threads)
    return results


def _room(scores: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate indices, estimates and probabilities of `width` tokens per row."""
    places = torch.empty((len(scores), width), dtype=torch.int64, device=scores.device)
    return places, *scores.new_empty((2, *places.shape)).unbind()
