"""What a draft's distribution is compared with, and by which measure; DistillSpec (arXiv 2310.08461) compares them.

"forward-kl": cross-entropy to the target's whole distribution. "total-variation": half the sum of |p − q|, which is one
minus the chance that the best test keeps a draft token. "labels": cross-entropy to the text's own next token.
"""

import torch
from torch import Tensor
from torch.nn import functional

from jakiro.training.features import Batch

DIVERGENCES = ("forward-kl", "total-variation", "labels")


def total_variation(predicted: Tensor, rows: Tensor, log_weights: Tensor | None, target: Tensor) -> Tensor:
    """Mean over positions.

    Args:
        predicted: (positions, hidden) features. target: (positions, kept) probabilities.
        rows, log_weights: the output rows of both, see `VocabularySlice`.
    """
    logits = functional.linear(predicted, rows.to(predicted.dtype)).float()
    draft = (logits if log_weights is None else logits + log_weights).softmax(-1)
    return (draft - target).abs().sum(-1).mean() / 2


def labels_at(batch: Batch, sequence: Tensor, position: Tensor, places: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The text's next tokens as distributions.

    Args:
        places: (vocab_size,) int64, the column of every token among the kept output rows; −1 where it has none.
        count: kept output rows.

    Returns:
        (positions,) bool, those whose next token has a column, and for these (…, count) float32 with a single one.
    """
    columns = places[batch.ids[sequence, position + 1]]
    known = columns >= 0
    target = torch.zeros((int(known.sum()), count), device=columns.device)
    return known, target.scatter_(1, columns[known][:, None], 1.0)
