"""The loss of heads whose last levels do not wait for one another, and what each level predicts along a written text.

Every level is learned at all positions of all steps: cross-entropy to the target's whole distribution and regression of
its feature, a level's weight falling with its depth as that of unrolled steps does.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS, kind_named
from jakiro.heads.layers import HeadOutput, row_output
from jakiro.training.cross_entropy import VocabularySlice
from jakiro.training.features import Batch
from jakiro.training.losses import LossWeights, Objective


class ParallelObjective(Objective):
    """The objective of heads with last levels of their own: each is one step.

    Args:
        levels_of: see `HeadKind.levels`.
    """

    def __init__(self, head: DraftHead, weights: LossWeights, levels_of: Callable[..., Iterator[Tensor]]) -> None:
        super().__init__(head, weights)
        self.levels_of = levels_of

    def forward(
        self, batch: Batch, vocabulary: VocabularySlice, num_steps: int, noise: Tensor | None = None
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss and its parts by name, see `Objective.forward`; all levels count whatever `num_steps` is."""
        return super().forward(batch, vocabulary, self.head.levels, noise)

    def unroll(self, batch: Batch, num_steps: int, noise: Tensor | None, _=None) -> Iterator[HeadOutput]:
        """Yields what every level predicts, (batch, length − 1, hidden): at s the feature of s + 1.

        Level d at s belongs to a tree whose root is at s − d + 1; where there is none, it is not to be used.
        """
        features = batch.inputs[:, :-1] if noise is None else batch.inputs[:, :-1] + noise[:, :-1]
        return map(row_output, islice(self.levels_of(self.head, batch.ids, features), num_steps))


def objective_for(head: DraftHead, weights: LossWeights, kinds: Kinds = KINDS) -> Objective:
    """The objective that a head is trained with.

    Raises:
        ValueError: it has a form that is published elsewhere.
    """
    if head.config.only_drafts:
        raise ValueError(
            "This head's MLPs have the form that their paper publishes, which Jakiro only drafts with; train one of "
            "ours with --method."
        )
    levels = kind_named(head.config.kind, kinds).levels
    return Objective(head, weights) if levels is None else ParallelObjective(head, weights, levels)
