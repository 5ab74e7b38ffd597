"""Candidates of a draft tree: merge chains into them and select the best ones.

All operations use tensors of fixed shapes, so that a CUDA graph can capture them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jakiro.core.tree import FLOAT_COLUMNS, INT_COLUMNS, DraftTree, NodeColumns

# Largest number of tokens of a chain, so that passes over chains have a fixed shape
MAX_CHAIN = 8


@dataclass(frozen=True, slots=True)
class Chain:
    """Consecutive tokens that one source proposes after the root.

    Attributes:
        token_ids: (length,) int64.
        log_estimates: (length,) float32, log probability of each token given that the one before is accepted.
        proposer: Index of the source in the drafter's `proposers`.
    """

    token_ids: Tensor
    log_estimates: Tensor
    proposer: int = 0

    @classmethod
    def of(
        cls, token_ids: Sequence[int], log_estimates: Sequence[float], proposer: int, device: torch.device
    ) -> "Chain":
        return cls(torch.tensor(token_ids, device=device), torch.tensor(log_estimates, device=device), proposer)

    @property
    def candidates(self) -> "Candidates":
        depths = torch.arange(1, self.token_ids.shape[0] + 1, device=self.token_ids.device)
        scores, proposers = self.log_estimates.cumsum(0), torch.full_like(depths, self.proposer)
        return Candidates.of(self.token_ids, depths - 1, depths, scores, proposers=proposers)


@dataclass(frozen=True, slots=True)
class Candidates(NodeColumns):
    """Candidates of a whole tree, parents before children. In `parents` the root is 0 and candidate c is c + 1.

    Attributes:
        rows: (candidates,) int64, index of the output row that proposed each one, over all rows of all draft passes.
    """

    rows: Tensor

    @classmethod
    def of(cls, token_ids: Tensor, parents: Tensor, depths: Tensor, scores: Tensor, **more: Tensor) -> "Candidates":
        """Return candidates; columns not in `more` are empty: no draft pass, no probability, proposer 0."""
        zeros, unknown = torch.zeros_like(depths), torch.full_like(scores, torch.nan)
        empty = {"draft_passes": zeros, "draft_probs": unknown, "proposers": zeros, "also": zeros, "rows": zeros}
        return cls(token_ids, parents, depths, scores, **(empty | more))

    @classmethod
    def joined(cls, parts: "Sequence[Candidates]") -> "Candidates":
        """Concatenate candidates; `parents` must already be indices into the concatenation."""
        return cls(**_by_name(*_matrices(parts)))

    @property
    def count(self) -> int:
        return self.token_ids.shape[0]

    def merged_with(self, chain: Chain) -> "Candidates":
        """Return candidates with a chain merged in at the root.

        A token that is already a candidate records both proposers and keeps the better score. Its copy in the chain
        stays as a candidate with score −inf, so that shapes are fixed.
        """
        added, count = chain.candidates, self.count
        scores, also = known_scores(self.scores), self.also.clone()
        parent = torch.zeros((), dtype=torch.int64, device=scores.device)
        parents, own_scores = [], []
        for index in range(added.count):
            match = (self.parents == parent) & (self.token_ids == added.token_ids[index])
            has_match = match.any()
            scores = torch.where(match, torch.maximum(scores, added.scores[index]), scores)
            also = torch.where(match, also | (1 << chain.proposer), also)
            parents.append(parent)
            own_scores.append(torch.where(has_match, -torch.inf, added.scores[index]))
            parent = torch.where(has_match, match.to(torch.int8).argmax() + 1, count + index + 1)
        added = replace(added, parents=torch.stack(parents), scores=torch.stack(own_scores))
        return Candidates.joined([replace(self, scores=scores, also=also), added])


_INTS = (*INT_COLUMNS, "rows")


def _matrices(parts: Sequence[Candidates]) -> tuple[Tensor, Tensor]:
    """Return all columns as (7, candidates) int64 and (2, candidates) float32, so that one operation moves them."""
    return tuple(
        torch.cat([getattr(part, name) for name in names for part in parts]).view(len(names), -1)
        for names in (_INTS, FLOAT_COLUMNS)
    )


def _by_name(ints: Tensor, floats: Tensor) -> dict[str, Tensor]:
    return dict(zip((*_INTS, *FLOAT_COLUMNS), (*ints.unbind(0), *floats.unbind(0)), strict=True))


def known_scores(scores: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the scores, or `out`, with NaN replaced by −inf.

    Corrupted weights produce NaN. A sort puts NaN first, and a child would be selected without its parent.
    """
    return torch.nan_to_num(scores, nan=-torch.inf, neginf=-torch.inf, out=out)


# Maps the root and the selected candidates to their evidence by name, (nodes, width) each, and their proposers
Evidence = Callable[[Candidates], tuple[dict[str, Tensor], Tensor]]


def best_tree(
    root_token: Tensor, candidates: Candidates, most: int, max_depth: int, evidence: Evidence | None = None
) -> DraftTree:
    """Return the tree of the root and its `most` best candidates: by score, then smaller depth, then index.

    With this order the parent of a selected candidate is always selected.

    Args:
        root_token: (1,) int64.
        candidates: Sorted by level; the score of a child is at most its parent's.
        most: Number of candidates.
        max_depth: Upper bound of their depths.
        evidence: Computes the evidence of the root and the selected candidates; None for none.
    """
    zero = torch.zeros_like(root_token)
    root = Candidates.of(root_token, zero - 1, zero, zero.float(), proposers=zero - 1)
    ints, floats = _matrices([root, candidates])
    # The root has score 0, the largest possible score
    scores = floats[FLOAT_COLUMNS.index("scores")]
    best = known_scores(scores, out=scores).sort(descending=True, stable=True).indices
    indices = best[: most + 1].sort().values
    columns = _by_name(ints.index_select(1, indices), floats.index_select(1, indices))
    columns["parents"] = torch.searchsorted(indices, columns["parents"], right=True) - 1
    chosen = Candidates(**columns)
    rows_of, columns["proposers"] = ({}, chosen.proposers) if evidence is None else evidence(chosen)
    del columns["rows"]
    return DraftTree(**columns, evidence=rows_of, max_depth=max_depth)


def chain_tree(root_token: Tensor, chain: Chain) -> DraftTree:
    """Return the tree that is only a chain; root_token is (1,) int64."""
    length = chain.token_ids.shape[0]
    return best_tree(root_token, chain.candidates, length, length)
