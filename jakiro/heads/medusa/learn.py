"""Training rule of Medusa heads: the MLPs read only the target's feature."""

from collections.abc import Iterator

import torch
from torch import Tensor

from jakiro.heads.kind import Texts
from jakiro.heads.learning import fit, later, sample_rows, whitening_matrix
from jakiro.heads.medusa.network import MedusaHead


def levels(head: MedusaHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """Yield the predictions of each MLP; see `HeadKind.levels`."""
    for number, features_of_level in enumerate(head(features)):
        yield later(features_of_level, number)


@torch.no_grad()
def start(head: MedusaHead, texts: Texts, seed: int) -> None:
    """Set residual blocks to zero, as in the paper, and fit the last matrices to the features of their levels.

    The seed is not used.
    """
    count = head.config.num_mlps
    long_texts = [features for _, features in texts if len(features) > count]
    rows = torch.cat([features[:-count] for features in long_texts])
    for number, mlp in enumerate(head.mlps, start=1):
        mlp.block.linear.weight.zero_()
        mlp.block.linear.bias.zero_()
        expected = torch.cat([features[number : len(features) - count + number] for features in long_texts])
        fit(mlp.write, rows, expected)


def whitening(head: MedusaHead, texts: Texts) -> dict[str, Tensor]:
    """Return the same whitening matrix for all weights; see `HeadKind.whitening`."""
    stream = whitening_matrix(sample_rows(head, texts)[1])
    return {name: stream for name, parameter in head.named_parameters() if parameter.ndim == 2}
