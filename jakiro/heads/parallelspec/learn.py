"""Training rule of ParallelSpec heads: each position has its own masks, which are initialized with mean rows."""

from collections.abc import Iterator

import torch
from torch import Tensor

from jakiro.heads import layer_learning
from jakiro.heads.kind import Texts
from jakiro.heads.learning import UnrolledRows, sample_rows, unrolled_mask
from jakiro.heads.parallelspec.network import MaskedHead

NOISE = 0.1


def levels(head: MaskedHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """Yield the predictions of each level; a mask attends to the text up to its position and to earlier masks there.

    See `HeadKind.levels`.
    """
    embeddings = head.embed(ids[:, 1:])
    positions = torch.arange(embeddings.shape[1], device=ids.device)[None]
    rows = UnrolledRows()
    yield head(embeddings, features, positions, None, rows).features
    for number in range(head.config.num_masks):
        mask = unrolled_mask(embeddings.shape[1], number + 2, ids.device)
        read = (head.mask_embeddings[number].expand_as(embeddings), head.mask_features[number].expand_as(features))
        yield head(*read, positions, mask, rows).features


@torch.no_grad()
def start(head: MaskedHead, texts: Texts, seed: int) -> None:
    """Initialize the layer as in other heads, and every mask with the mean embedding and feature plus small noise."""
    layer_learning.start(head, texts, seed)
    torch.manual_seed(seed)
    inputs, _, _ = sample_rows(head, texts)
    for parameter, rows in zip((head.mask_embeddings, head.mask_features), inputs.chunk(2, dim=-1), strict=True):
        parameter.copy_(rows.mean(0) + NOISE * rows.std(0) * torch.randn_like(parameter))
