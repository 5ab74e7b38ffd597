"""Growing a tree in one call of compiled code, on a CPU: the candidates that `TreeGrower` finds level by level."""

import torch
from torch import Tensor

from jakiro.config import TreeConfig
from jakiro.drafting.base import Proposal
from jakiro.drafting.candidates import Candidates
from jakiro.drafting.growing import TreeGrower
from jakiro.heads.compiled import Growth
from jakiro.heads.layer_head import LayerHead
from jakiro.kernels.compiled import sampling as native


def grows_in_one_call(head: LayerHead, tree: TreeConfig) -> bool:
    """Whether `CompiledGrower` grows such trees with this head."""
    return head.grows and native.ranks_up_to(min(tree.width, tree.nodes - 1, head.draft_token_ids.shape[0]))


class CompiledGrower(TreeGrower):
    """As `TreeGrower`, and reads the committed tokens too.

    Args:
        pending: (rows,) int64 and (rows, feature_size), committed tokens that the cache has no rows for, the root the
            last of them, and the target's features one position before each.
    """

    def __init__(self, head: LayerHead, cache, pending: tuple[Tensor, Tensor], *arguments) -> None:
        super().__init__(head, cache, None, pending[0][-1:], *arguments)
        self._pending = pending

    def grow(self) -> Proposal:
        branches = ["main"] * (self.last_expanded + 1) + ["contrastive"] * self.contrastive
        weights = [self.ranking.calibration.at(f"{branch}/{depth}") for depth, branch in enumerate(branches, start=1)]
        tempered = not self.sampling.greedy
        growth = Growth(
            self.width,
            self.last_expanded,
            self.explored,
            self.contrastive,
            self.sampling.temperature if tempered else 1.0,
            torch.tensor(weights),
            self.noise,
        )
        grown = self.head.grow(*self._pending, self.cache, growth)
        token_ids, parents, depths, passes, proposers, rows = grown.columns
        self.levels = [
            Candidates(
                token_ids,
                parents,
                depths,
                grown.scores,
                passes,
                grown.draft_probs,
                proposers,
                torch.zeros_like(rows),
                rows,
            )
        ]
        self.outputs = [grown.output]
        return self._select()
