"""Candidates before they become a tree, and the context expert's chain merged into them. Tensors only."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from jakiro.core.tree import BRANCH_CONTEXT, DraftTree


@dataclass(frozen=True, slots=True)
class Chain:
    """Tokens that the context expert proposes one after another at the root.

    Attributes:
        token_ids: (length,) int64; log_estimates: (length,) float32, of each given the one before.
    """

    token_ids: Tensor
    log_estimates: Tensor


@dataclass(frozen=True, slots=True)
class Candidates:
    """Flat candidates of a whole tree; `parents` count the root as 0 and candidate c as c + 1, parents come first."""

    token_ids: Tensor
    parents: Tensor
    depths: Tensor
    scores: Tensor
    draft_probs: Tensor
    proposers: Tensor
    rows: Tensor
    draft_passes: Tensor
    branches: Tensor
    also_context: Tensor

    def merged_with(self, chain: Chain) -> "Candidates":
        """Adds a chain at the root; a node that the head proposed too names both and keeps the better score.

        A chain node that is not needed stays as a candidate with score −inf, so that shapes are fixed.
        """
        length, count = chain.token_ids.shape[0], self.token_ids.shape[0]
        chain_scores = chain.log_estimates.cumsum(0)
        scores, also_context = self.scores.clone(), self.also_context.clone()
        parent = torch.zeros((), dtype=torch.int64, device=scores.device)
        parents, own_scores = [], []
        for index in range(length):
            match = (self.parents == parent) & (self.token_ids == chain.token_ids[index])
            found = match.any()
            scores = torch.where(match, torch.maximum(scores, chain_scores[index]), scores)
            also_context = also_context | match
            parents.append(parent)
            own_scores.append(torch.where(found, -torch.inf, chain_scores[index]))
            parent = torch.where(found, match.to(torch.int8).argmax() + 1, count + index + 1)
        zeros = torch.zeros(length, dtype=torch.int64, device=scores.device)
        return Candidates(
            token_ids=torch.cat([self.token_ids, chain.token_ids]),
            parents=torch.cat([self.parents, torch.stack(parents)]),
            depths=torch.cat([self.depths, torch.arange(1, length + 1, device=scores.device)]),
            scores=torch.cat([scores, torch.stack(own_scores)]),
            draft_probs=torch.cat([self.draft_probs, torch.full((length,), torch.nan, device=scores.device)]),
            proposers=torch.cat([self.proposers, zeros - 1]),
            rows=torch.cat([self.rows, zeros]),
            draft_passes=torch.cat([self.draft_passes, zeros]),
            branches=torch.cat([self.branches, zeros + BRANCH_CONTEXT]),
            also_context=torch.cat([also_context, torch.zeros(length, dtype=torch.bool, device=scores.device)]),
        )


def chain_tree(root_token: Tensor, chain: Chain) -> DraftTree:
    """The tree that is only the context expert's chain; root_token is (1,) int64."""
    length = chain.token_ids.shape[0]
    root = DraftTree.root_only(root_token)
    columns = {
        f.name: getattr(root, f.name).repeat_interleave(length + 1, dim=0)
        for f in fields(DraftTree)
        if f.name not in {"expected", "max_depth"}
    }
    depths = torch.arange(length + 1, device=root_token.device)
    columns |= {
        "token_ids": torch.cat([root_token, chain.token_ids]),
        "parents": depths - 1,
        "depths": depths,
        "scores": torch.cat([root.scores, chain.log_estimates.cumsum(0)]),
        "branches": torch.cat([root.branches, torch.full_like(chain.token_ids, BRANCH_CONTEXT)]),
    }
    return DraftTree(**columns, expected=root.expected, max_depth=length)
