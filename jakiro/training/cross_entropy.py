"""Cross-entropies between features and the target's distributions, in chunks, so that no logits are stored."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# Rows computed at once: their logits fit into a processor's cache, and their memory is reused
CHUNK_ROWS = 128
_LEAST_PROBABILITY = 1e-37


class VocabularySlice(NamedTuple):
    """The output rows of one training step.

    Attributes:
        rows: (selected, hidden) output rows.
        log_weights: (selected,) −log of each row's selection probability, or None if all rows are selected.
    """

    rows: Tensor
    log_weights: Tensor | None


def logits_of(features: Tensor, output_rows: Tensor, log_weights: Tensor | None) -> Tensor:
    """Return (…, selected) float32 logits; the product is computed in the features' dtype."""
    # With more than two dimensions PyTorch would copy the weights for each batch
    flat = functional.linear(features.reshape(-1, features.shape[-1]), output_rows.to(features.dtype))
    logits = flat.view(*features.shape[:-1], -1).float()
    return logits if log_weights is None else logits.add_(log_weights)


def dot(first: Tensor, second: Tensor) -> Tensor:
    """Return Σ first · second over all entries, () float64; `einsum` takes four times as long on a CPU."""
    return torch.dot(first.flatten(), second.flatten()).double()


def normalisers_of(features: Tensor, vocabulary: VocabularySlice) -> Tensor:
    """Return (…,) float32, log Σ exp of the logits of (…, hidden) features, computed in chunks."""
    rows = vocabulary.rows.to(features.dtype)
    chunks = features.flatten(0, -2).split(CHUNK_ROWS)
    normalisers = [logits_of(chunk, rows, vocabulary.log_weights).logsumexp(-1) for chunk in chunks]
    return torch.cat(normalisers).view(features.shape[:-1])


class SoftCrossEntropy(torch.autograd.Function):
    """Mean over positions of −Σ_x p(x) log softmax(W f)(x), with its gradient; no (positions, V) tensor is stored."""

    @staticmethod
    def forward(ctx, features: Tensor, output_rows: Tensor, log_weights: Tensor | None, target: Tensor) -> Tensor:
        gradient, output_rows = torch.empty_like(features), output_rows.to(features.dtype)
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        for start in range(0, len(features), CHUNK_ROWS):
            chunk, probabilities = features[start : start + CHUNK_ROWS], target[start : start + CHUNK_ROWS]
            logits = logits_of(chunk, output_rows, log_weights)
            normaliser = logits.logsumexp(dim=-1, keepdim=True)
            total += normaliser.sum(dtype=torch.float64)
            total -= dot(logits, probabilities)
            error = logits.sub_(normaliser).exp_().sub_(probabilities)
            gradient[start : start + CHUNK_ROWS] = error.to(chunk.dtype) @ output_rows
        ctx.save_for_backward(gradient)
        return (total / len(features)).float()

    @staticmethod
    def backward(ctx, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * (grad_output / len(gradient)).to(gradient), None, None, None


class MixtureCrossEntropy(torch.autograd.Function):
    """Mean over positions of −Σ_x p(x) log Σ_e w_e q_e(x).

    Also returns each expert's share, Σ_x p(x) w_e q_e(x) / q(x), and (experts, positions) float32 log Σ_x exp of each
    expert's logits.
    """

    @staticmethod
    def forward(
        ctx, features: Tensor, router_log: Tensor, output_rows: Tensor, log_weights: Tensor | None, target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`features` is (experts, positions, hidden), `router_log` (positions, experts) the log of w."""
        gradient, shares = torch.empty_like(features), torch.empty_like(router_log)
        normalisers = features.new_empty(features.shape[:-1], dtype=torch.float32)
        total, output_rows = features.new_zeros((), dtype=torch.float64), output_rows.to(features.dtype)
        kept = features.new_empty(len(features), CHUNK_ROWS, len(output_rows), dtype=torch.float32)
        for start in range(0, features.shape[1], CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            probabilities = target[part]
            logits = logits_of(features[:, part], output_rows, log_weights)
            highest = logits.amax(-1, keepdim=True)
            probs = logits.sub_(highest).exp_()
            sums = probs.sum(-1, keepdim=True)
            normalisers[:, part] = (highest + sums.log())[..., 0]
            probs /= sums
            joint = torch.mul(probs, router_log[part].T.exp()[..., None], out=kept[:, : len(probabilities)])
            mixed = joint.sum(0).clamp_(min=_LEAST_PROBABILITY)
            responsible = joint.mul_(probabilities / mixed)
            total -= dot(mixed.log_(), probabilities)
            share = responsible.sum(dim=-1)
            shares[part] = share.T
            error = probs.mul_(share[..., None]).sub_(responsible)
            gradient[:, part] = error.to(features.dtype) @ output_rows
        ctx.save_for_backward(gradient, shares)
        ctx.mark_non_differentiable(shares, normalisers)
        return (total / features.shape[1]).float(), shares, normalisers

    @staticmethod
    def backward(ctx, grad_output: Tensor, *_) -> tuple[Tensor, Tensor, None, None, None]:
        gradient, shares = ctx.saved_tensors
        scale = grad_output / len(shares)
        return gradient * scale.to(gradient), -shares * scale, None, None, None
