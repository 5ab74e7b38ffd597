"""What kinds share to say how they learn: inputs along texts, masks of unrolled steps, least squares."""

import torch
from torch import Tensor, nn

from jakiro.heads.base import DraftHead
from jakiro.heads.kind import Texts

# [E[x_{t+1}]; h_t], h_{t+1} and h_{t+2} at all texts' positions, one after another
Rows = tuple[Tensor, Tensor, Tensor]


class UnrolledRows:
    """Keys and values of the true text and of every unrolled step so far: what a cache is in drafting."""

    def __init__(self) -> None:
        self.layers: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def update(self, keys: Tensor, values: Tensor, layer_idx: int = 0) -> tuple[Tensor, Tensor]:
        rows = self.layers.setdefault(layer_idx, [])
        rows.append((keys, values))
        return tuple(torch.cat(each, dim=2) for each in zip(*rows, strict=True))


def unrolled_mask(length: int, step: int, device: torch.device) -> Tensor:
    """Which rows the rows of an unrolled step may see.

    Args:
        length: rows per step; row s of every step sits at position s.
        step: 1 for the true rows, k for rows that read the feature of step k − 1.

    Returns:
        (length, step · length) bool: step 1 is causal; the row at s of step k sees the true rows up to s − k + 1, the
        row of each step 2 … k that lies on its own path, and itself.
    """
    rows, columns = torch.arange(length, device=device)[:, None], torch.arange(length, device=device)[None, :]
    blocks = [columns <= rows - step + 1]
    blocks += [columns == rows - (step - earlier) for earlier in range(2, step + 1)]
    return torch.cat(blocks, dim=1)


def later(rows: Tensor, count: int) -> Tensor:
    """(batch, length, …) rows moved back by `count` places, the first one repeated before them."""
    return torch.cat([rows[:, :1].expand(-1, count, -1), rows[:, : rows.shape[1] - count]], dim=1)


@torch.no_grad()
def sample_rows(head: DraftHead, texts: Texts) -> Rows:
    """A head's inputs along texts and the features that it should predict from them.

    Returns:
        (rows, 2 · hidden) [E[x_{t+1}]; h_t], (rows, hidden) h_{t+1} and h_{t+2}.
    """
    parts, hidden = [], head.config.target_hidden_size
    for ids, features in texts:
        last = features[:, :hidden]
        parts.append((torch.cat([head.embed(ids[1:-1]), last[:-2]], dim=-1), last[1:-1], last[2:]))
    return tuple(map(torch.cat, zip(*parts, strict=True)))


def randomise(module: nn.Module) -> None:
    """Gives every linear layer in the module random weights whose output is as large as their input."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            if layer.bias is not None:
                layer.bias.zero_()


def fit(linear: nn.Linear, rows: Tensor, wanted: Tensor) -> None:
    """Makes a linear layer, with its bias where it has one, the best map from rows to what is wanted."""
    solution = ridge(torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1), wanted)
    linear.weight.copy_(solution[:-1].T)
    if linear.bias is not None:
        linear.bias.copy_(solution[-1])


def ridge(rows: Tensor, wanted: Tensor) -> Tensor:
    """(columns, outputs) of the linear map from rows to what is wanted, by ridge regression."""
    gram = (rows.T @ rows).double()
    gram.diagonal().add_(1e-3 * gram.diagonal().mean())
    return torch.linalg.solve(gram, (rows.T @ wanted).double()).to(rows)


def whitening_matrix(rows: Tensor, damping: float = 0.3) -> Tensor:
    """The symmetric M for which the second moment of rows @ M is nearly the unit matrix.

    Args:
        rows: (count, columns) samples of a matrix's input.
        damping: added to every eigenvalue of the second moment, relative to their median; keeps directions that
            hardly occur from being blown up.
    """
    rows = rows.double()
    moment = rows.T @ rows / len(rows)
    values, vectors = torch.linalg.eigh(moment)
    # Fewer rows than half the columns leave the median at zero.
    floor = torch.maximum(damping * values.median(), 1e-6 * values.mean())
    return ((vectors / (values.clamp(min=0) + floor).sqrt()) @ vectors.T).float()
