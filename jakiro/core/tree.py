"""Draft trees as tensors: tokens, parents, depths, scores and who proposed what; masks and paths over them.

Tensors in, tensors out, without host reads; knows nothing of models and caches.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """What is known of each node of a tree, one number a node in every column.

    Attributes:
        token_ids: (num_nodes,) int64; siblings are distinct.
        parents: (num_nodes,) int64; parents[0] is −1, otherwise 0 <= parents[i] < i.
        depths: (num_nodes,) int64; the root has 0.
        scores: (num_nodes,) float32, sum of log edge estimates along the path; the root has 0.
        draft_passes: (num_nodes,) int64, which draft pass proposed the node, from 1; 0 where no pass did.
        draft_probs: (num_nodes,) float32 softmax of the draft's logits at the sampling temperature; NaN if none.
        proposers: (num_nodes,) int64, place in the drafter's `proposers`; −1 for the root.
        also: (num_nodes,) int64, bit i set where proposer i proposed the same node too.
    """

    token_ids: Tensor
    parents: Tensor
    depths: Tensor
    scores: Tensor
    draft_passes: Tensor
    draft_probs: Tensor
    proposers: Tensor
    also: Tensor


@dataclass(frozen=True, slots=True)
class DraftTree(NodeColumns):
    """A tree of draft tokens; node 0 is the root, the last committed token.

    Attributes:
        evidence: further numbers of the drafter for each node, by name, (num_nodes, width) float32; NaN where none.
        max_depth: the deepest node's depth or more, known on the host.
    """

    evidence: dict[str, Tensor]
    max_depth: int

    @property
    def num_nodes(self) -> int:
        return self.token_ids.shape[0]

    @property
    def columns(self) -> dict[str, Tensor]:
        """The fields with one number per node, by name: those of integers, then those of floats."""
        return {name: getattr(self, name) for name in (*INT_COLUMNS, *FLOAT_COLUMNS)}

    @classmethod
    def root_only(cls, token_id: Tensor) -> "DraftTree":
        """The tree of plain decoding: just the last committed token, a (1,) int64 tensor."""
        depths = torch.zeros_like(token_id)
        return cls.unscored(token_id, depths - 1, depths, 0)

    @classmethod
    def unscored(cls, token_ids: Tensor, parents: Tensor, depths: Tensor, max_depth: int) -> "DraftTree":
        """A tree with tokens and a shape, and nothing else known."""
        zeros = torch.zeros_like(token_ids)
        return cls(
            token_ids=token_ids,
            parents=parents,
            depths=depths,
            scores=zeros.float(),
            draft_passes=zeros,
            draft_probs=torch.full_like(zeros, torch.nan, dtype=torch.float32),
            proposers=zeros - 1,
            also=zeros,
            evidence={},
            max_depth=max_depth,
        )


# Columns of one type move together, in one operation: float32 and int64
FLOAT_COLUMNS = ("scores", "draft_probs")
INT_COLUMNS = tuple(field.name for field in fields(NodeColumns) if field.name not in FLOAT_COLUMNS)


def ancestor_mask(parents: Tensor, max_depth: int) -> Tensor:
    """Which nodes each node may attend to: itself and its ancestors.

    Args:
        parents: (num_nodes,) int64; parents[0] is −1, otherwise 0 <= parents[i] < i.
        max_depth: depth of the deepest node or more.

    Returns:
        (num_nodes, num_nodes) bool; row i is True at i and at every ancestor of i.

    Tree attention follows SpecInfer (arXiv 2305.09781).
    """
    mask = torch.eye(parents.shape[0], dtype=torch.bool, device=parents.device)
    upwards = parents.clamp(min=0)
    mask[:, 0].fill_(True)
    covered = 1
    while covered < max_depth:
        # Each row covers its next `covered` ancestors; upwards leads that many further up.
        mask = mask | mask.index_select(0, upwards)
        covered *= 2
        upwards = upwards.index_select(0, upwards) if covered < max_depth else upwards
    return mask


def accepted_node(mask: Tensor, depths: Tensor, right: Tensor) -> Tensor:
    """The deepest node that is right together with all its ancestors, as a 0-dimensional int64 tensor.

    Args:
        mask: (num_nodes, num_nodes) bool ancestor-or-self mask.
        depths: (num_nodes,) int64.
        right: (num_nodes,) bool; right[0], the root, is taken as True.

    With distinct siblings there is exactly one such node.
    """
    wrong = ~right
    # One element that is assigned a number would be copied from the host, which no capture allows
    wrong[:1].fill_(False)
    return depths.masked_fill((mask & wrong).any(-1), -1).argmax()
