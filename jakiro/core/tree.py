"""Draft trees as tensors: tokens, parents, depths, scores and proposers; masks and paths over them.

All functions take and return tensors and do not copy them to the host. They do not depend on models or caches.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """Columns with one number per node of a tree.

    Attributes:
        token_ids: (num_nodes,) int64; siblings are distinct.
        parents: (num_nodes,) int64; parents[0] is −1, otherwise 0 <= parents[i] < i.
        depths: (num_nodes,) int64; the root has 0.
        scores: (num_nodes,) float32, estimated log probability that the path from the root to the node is accepted: the
            sum of the log estimates of its edges. The root has 0.
        draft_passes: (num_nodes,) int64, 1-based draft pass that proposed the node; 0 if no pass did.
        draft_probs: (num_nodes,) float32 softmax of the draft's logits at the sampling temperature; NaN if unknown.
        proposers: (num_nodes,) int64, index into the drafter's `proposers`; −1 for the root.
        also: (num_nodes,) int64, bit i is set if proposer i proposed the same node, too.
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
        evidence: More numbers of the drafter by name, such as router weights, (num_nodes, width) float32 each; NaN for
            nodes without them.
        max_depth: Depth of the deepest node, or an upper bound of it; a number on the host.
    """

    evidence: dict[str, Tensor]
    max_depth: int

    @property
    def num_nodes(self) -> int:
        """Number of nodes, root included."""
        return self.token_ids.shape[0]

    @property
    def columns(self) -> dict[str, Tensor]:
        """Columns by name: first the integer columns, then the float columns."""
        return {name: getattr(self, name) for name in (*INT_COLUMNS, *FLOAT_COLUMNS)}

    @classmethod
    def root_only(cls, token_id: Tensor) -> "DraftTree":
        """Return the tree of plain decoding: only the last committed token, (1,) int64."""
        depths = torch.zeros_like(token_id)
        return cls.unscored(token_id, depths - 1, depths, 0)

    @classmethod
    def unscored(cls, token_ids: Tensor, parents: Tensor, depths: Tensor, max_depth: int) -> "DraftTree":
        """Return a tree without scores, probabilities, proposers and evidence."""
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


# Columns of one dtype, float32 or int64, are stacked, so that one operation copies or selects all of them
FLOAT_COLUMNS = ("scores", "draft_probs")
INT_COLUMNS = tuple(field.name for field in fields(NodeColumns) if field.name not in FLOAT_COLUMNS)


def ancestor_mask(parents: Tensor, max_depth: int) -> Tensor:
    """Return the tree attention mask: each node attends to itself and its ancestors.

    Args:
        parents: (num_nodes,) int64; parents[0] is −1, otherwise 0 <= parents[i] < i.
        max_depth: Depth of the deepest node, or an upper bound of it.

    Returns:
        (num_nodes, num_nodes) bool; row i is True at i and at every ancestor of i.

    Tree attention follows SpecInfer (arXiv 2305.09781, section 4).
    """
    mask = torch.eye(parents.shape[0], dtype=torch.bool, device=parents.device)
    upwards = parents.clamp(min=0)
    mask[:, 0].fill_(True)
    covered = 1
    while covered < max_depth:
        # Row i is True at node i and its nearest covered − 1 ancestors; upwards[i] is the ancestor `covered` levels up
        mask = mask | mask.index_select(0, upwards)
        covered *= 2
        upwards = upwards.index_select(0, upwards) if covered < max_depth else upwards
    return mask


def accepted_node(mask: Tensor, depths: Tensor, right: Tensor) -> Tensor:
    """Return the deepest node that is right together with all its ancestors, as a () int64 tensor.

    Args:
        mask: (num_nodes, num_nodes) bool ancestor-or-self mask.
        depths: (num_nodes,) int64.
        right: (num_nodes,) bool; the root counts as right whatever right[0] is.

    With distinct siblings there is exactly one such node.
    """
    wrong = ~right
    # `wrong[0] = False` would copy the value from the host, which is not allowed while a CUDA graph is captured
    wrong[:1].fill_(False)
    return depths.masked_fill((mask & wrong).any(-1), -1).argmax()
