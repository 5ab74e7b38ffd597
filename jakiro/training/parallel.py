"""The loss of heads whose last levels do not wait for one another, and what each level predicts along a written text.

Every level is learned at all positions of all steps: cross-entropy to the target's whole distribution and regression of
its feature, a level's weight falling with its depth as that of unrolled steps does.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.training.cross_entropy import VocabularySlice
from jakiro.training.features import Batch
from jakiro.training.losses import (
    LossWeights,
    Objective,
    UnrolledRows,
    learnable_positions,
    target_of,
    token_and_feature_loss,
    unrolled_mask,
)


class ParallelObjective(Objective):
    """The objective of heads with last levels of their own."""

    def forward(
        self, batch: Batch, vocabulary: VocabularySlice, num_steps: int, noise: Tensor | None = None
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss and its parts by name, see `Objective.forward`; all levels count whatever `num_steps` is."""
        sequence, position = learnable_positions(batch, self.head.levels).nonzero(as_tuple=True)
        true_features, target, entropy = target_of(batch, sequence, position, vocabulary)
        parts = {"positions": float(len(position)), "target_entropy": float(entropy)}
        total = batch.features.new_zeros(())
        for depth, features in enumerate(self.levels(batch, noise), start=1):
            predicted = features[sequence, position - 1]
            token, feature = token_and_feature_loss(predicted, target, true_features, vocabulary)
            factor = self.weights.unroll_decay ** (depth - 1)
            total = total + factor * (self.weights.token * token + self.weights.feature * feature)
            parts |= {f"main_{depth}/token": token.item(), f"main_{depth}/feature": feature.item()}
        return total, parts

    def levels(self, batch: Batch, noise: Tensor | None) -> Iterator[Tensor]:
        """Yields what each level predicts, (batch, length − 1, hidden): row s the feature at s + 1.

        Row s of level d comes from a tree whose root's row is s − d + 1; where there is none, it is not to be used.
        """
        features = batch.inputs[:, :-1] if noise is None else batch.inputs[:, :-1] + noise[:, :-1]
        yield from _LEVELS[self.head.config.network](self.head, batch.ids, features)


def objective_for(head: DraftHead, weights: LossWeights) -> Objective:
    """The objective that a head is trained with.

    Raises:
        ValueError: its MLPs have the published form.
    """
    if head.config.published_blocks:
        raise ValueError(
            "This head's MLPs have the form that their paper publishes, which Jakiro only drafts with; train one of "
            "ours with --method."
        )
    return Objective(head, weights) if head.levels is None else ParallelObjective(head, weights)


def _of_masks(head: DraftHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """Each position has masks of its own, which see the text up to it and those of its masks that come before."""
    embeddings = head.embed(ids[:, 1:])
    positions = torch.arange(embeddings.shape[1], device=ids.device)[None]
    rows = UnrolledRows()
    yield head(embeddings, features, positions, None, rows).features
    for number in range(head.config.num_parallel):
        mask = unrolled_mask(embeddings.shape[1], number + 2, ids.device)
        read = (head.mask_embeddings[number].expand_as(embeddings), head.mask_features[number].expand_as(features))
        yield head(*read, positions, mask, rows).features


def _of_stages(head: DraftHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """The layers twice, the second time on their own features; the MLPs on what the layers would read next."""
    embeddings = head.embed(ids[:, 1:])
    length = embeddings.shape[1]
    positions = torch.arange(length, device=ids.device)[None]
    rows = UnrolledRows()
    first = head(embeddings, features, positions, None, rows).features
    yield first
    own = torch.cat([features[:, :1].to(first.dtype), first[:, :-1]], dim=1)
    second = head(embeddings, own, positions, unrolled_mask(length, 2, ids.device), rows).features
    yield second
    read = [head.fc(torch.cat([embeddings[:, 1:], each[:, :-1]], dim=-1)) for each in (first, second)]
    # Row s of the second is at s + 1; the first level's token stands one place before the second's
    further = head.further(_later(read[0], 1), read[1], head.config.num_parallel)
    for number, each in enumerate(further):
        yield _later(torch.cat([each[:, :1], each], dim=1), number)


def _of_mlps(head: DraftHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """The MLPs on the target's feature alone."""
    for number, each in enumerate(head(features)):
        yield _later(each, number)


def _later(rows: Tensor, count: int) -> Tensor:
    """(batch, length, …) rows moved back by `count` places, the first one repeated before them."""
    return torch.cat([rows[:, :1].expand(-1, count, -1), rows[:, : rows.shape[1] - count]], dim=1)


_LEVELS = {"masks": _of_masks, "staged": _of_stages, "mlps": _of_mlps}
