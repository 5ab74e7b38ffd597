"""Functions for the training rules of all kinds: inputs of texts, masks of unrolled steps, least squares."""

import torch
from torch import Tensor, nn

from jakiro.heads.base import DraftHead
from jakiro.heads.kind import Texts

# [E[x_{t+1}]; h_t], h_{t+1} and h_{t+2} at the positions of all texts, concatenated
Rows = tuple[Tensor, Tensor, Tensor]


class UnrolledRows:
    """Keys and values of the true text and of all unrolled steps so far; replaces the cache in training."""

    def __init__(self) -> None:
        self.layers: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def update(self, keys: Tensor, values: Tensor, layer_idx: int = 0) -> tuple[Tensor, Tensor]:
        rows = self.layers.setdefault(layer_idx, [])
        rows.append((keys, values))
        return tuple(torch.cat(parts, dim=2) for parts in zip(*rows, strict=True))


def unrolled_mask(length: int, step: int, device: torch.device) -> Tensor:
    """Return the attention mask of an unrolled step.

    Args:
        length: Rows per step; row s of every step has position s.
        step: 1 for the true rows, k for rows that read the feature of step k − 1.

    Returns:
        (length, step · length) bool. Step 1 is causal. Row s of step k attends to the true rows up to s − k + 1, to the
        row of each step 2 … k on its own path, and to itself.
    """
    rows, columns = torch.arange(length, device=device)[:, None], torch.arange(length, device=device)[None, :]
    blocks = [columns <= rows - step + 1]
    blocks += [columns == rows - (step - earlier) for earlier in range(2, step + 1)]
    return torch.cat(blocks, dim=1)


def later(rows: Tensor, count: int) -> Tensor:
    """Shift (batch, length, …) rows back by `count` places; the first row fills the gap."""
    return torch.cat([rows[:, :1].expand(-1, count, -1), rows[:, : rows.shape[1] - count]], dim=1)


@torch.no_grad()
def sample_rows(head: DraftHead, texts: Texts) -> Rows:
    """Return the inputs of a head for texts and the features that it should predict.

    Returns:
        (rows, 2 · hidden) [E[x_{t+1}]; h_t], (rows, hidden) h_{t+1} and h_{t+2}.
    """
    parts, hidden = [], head.config.target_hidden_size
    for ids, features in texts:
        last = features[:, :hidden]
        parts.append((torch.cat([head.embed(ids[1:-1]), last[:-2]], dim=-1), last[1:-1], last[2:]))
    return tuple(map(torch.cat, zip(*parts, strict=True)))


def randomise(module: nn.Module) -> None:
    """Set every linear layer of the module to random weights that keep the size of the inputs, and to zero biases.

    Call it under `torch.no_grad()`.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            if layer.bias is not None:
                layer.bias.zero_()


def fit(linear: nn.Linear, rows: Tensor, expected: Tensor) -> None:
    """Fit a linear layer, including its bias if it has one, to map rows to the expected outputs."""
    solution = ridge(torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1), expected)
    linear.weight.copy_(solution[:-1].T)
    if linear.bias is not None:
        linear.bias.copy_(solution[-1])


def ridge(rows: Tensor, expected: Tensor) -> Tensor:
    """Return the (columns, outputs) matrix of the linear map from rows to expected outputs, by ridge regression."""
    gram = (rows.T @ rows).double()
    gram.diagonal().add_(1e-3 * gram.diagonal().mean())
    return torch.linalg.solve(gram, (rows.T @ expected).double()).to(rows)


def whitening_matrix(rows: Tensor, damping: float = 0.3) -> Tensor:
    """Return the symmetric M for which the second moment of rows @ M is close to the identity.

    Args:
        rows: (count, columns) samples of a matrix's input.
        damping: Added to every eigenvalue of the second moment, relative to their median, so that rare directions are
            not amplified.
    """
    rows = rows.double()
    moment = rows.T @ rows / len(rows)
    values, vectors = torch.linalg.eigh(moment)
    # With fewer rows than half the columns the median is zero
    floor = torch.maximum(damping * values.median(), 1e-6 * values.mean())
    return ((vectors / (values.clamp(min=0) + floor).sqrt()) @ vectors.T).float()
