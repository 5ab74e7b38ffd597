"""Draft trees as tensors: tokens, parents, depths, scores and who proposed what; masks and paths over them.

Tensors in, tensors out, without host reads; knows nothing of models and caches.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BRANCH_MAIN, BRANCH_CONTRASTIVE, BRANCH_CONTEXT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A tree of draft tokens; node 0 is the root, the last committed token.

    Attributes:
        token_ids: (num_nodes,) int64; siblings are distinct.
        parents: (num_nodes,) int64; parents[0] is −1, otherwise 0 <= parents[i] < i.
        depths: (num_nodes,) int64; the root has 0.
        scores: (num_nodes,) float32, sum of log edge estimates along the path; the root has 0.
        draft_passes: (num_nodes,) int64, which head pass proposed the node, from 1; 0 where no pass did.
        branches: (num_nodes,) int64, BRANCH_MAIN, BRANCH_CONTRASTIVE or BRANCH_CONTEXT.
        proposers: (num_nodes,) int64, the expert that pushed the node most; −1 where no single one is named.
        also_context: (num_nodes,) bool; the context expert proposed the same node too.
        draft_probs: (num_nodes,) float32 softmax of the draft's logits at the sampling temperature; NaN if none.
        router_weights: (num_nodes, num_experts) float32, those of the row the node came from.
        contributions: (num_nodes, num_experts) float32 signed parts of the node's logit; NaN if none.
        residuals: (num_nodes,) float32, the part of the logit that no expert owns; NaN if none.
        expected: (levels, buckets) float32, how many accepted tokens the best trees of so many levels and so many
            nodes would promise; empty where nobody asked.
        max_depth: the deepest node's depth or more, known on the host.
    """

    token_ids: Tensor
    parents: Tensor
    depths: Tensor
    scores: Tensor
    draft_passes: Tensor
    branches: Tensor
    proposers: Tensor
    also_context: Tensor
    draft_probs: Tensor
    router_weights: Tensor
    contributions: Tensor
    residuals: Tensor
    expected: Tensor
    max_depth: int

    @property
    def num_nodes(self) -> int:
        return self.token_ids.shape[0]

    @classmethod
    def root_only(cls, token_id: Tensor) -> "DraftTree":
        """The tree of plain decoding: just the last committed token, a (1,) int64 tensor."""
        device = token_id.device
        zeros = torch.zeros(1, dtype=torch.int64, device=device)
        nan = torch.full((1,), torch.nan, device=device)
        none = torch.zeros((1, 0), device=device)
        return cls(
            token_ids=token_id,
            parents=zeros - 1,
            depths=zeros,
            scores=torch.zeros(1, device=device),
            draft_passes=zeros,
            branches=zeros,
            proposers=zeros - 1,
            also_context=torch.zeros(1, dtype=torch.bool, device=device),
            draft_probs=nan,
            router_weights=none,
            contributions=none,
            residuals=nan,
            expected=torch.zeros((0, 0), device=device),
            max_depth=0,
        )


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
    mask[:, 0] = True
    covered = 1
    while covered < max_depth:
        # Each row covers its next `covered` ancestors; upwards leads that many further up.
        mask = mask | mask[upwards]
        upwards = upwards[upwards]
        covered *= 2
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
    wrong[0] = False
    all_right = ~(mask & wrong).any(-1)
    return torch.where(all_right, depths, -1).argmax()
