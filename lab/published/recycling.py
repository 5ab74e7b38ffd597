"""Token Recycling (arXiv 2408.08696): when a token appears again, the target's best next tokens are proposed again.

For each token of the vocabulary, a table stores the target's best tokens after the last node with that token, accepted
or not. The tree is a fixed tree of ranks, filled from the table; nothing is trained and no draft pass is run. The paper
has one table for all answers; here each answer has its own, so that no visitor drafts from another visitor's text. Of
the paper's static tree, the branches with the best hit rates of this answer are used.
"""

import functools
import heapq
import math
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.noise import NoiseSource
from jakiro.core.verify import Outcome
from jakiro.drafters.base import (
    Committed,
    Context,
    Drafter,
    DraftRequest,
    DraftSession,
    Method,
    Needs,
    Proposal,
    Proposer,
)
from jakiro.drafters.candidates import Candidates
from lab.published.host import best_proposal

NUM_KEPT = 8
NUM_CANDIDATES = 128
# Assumed hit rate of each rank at the start of an answer, with the weight of PRIOR_TRIES observations
PRIOR_RATES = (0.4, 0.14, 0.08, 0.05, 0.035, 0.025, 0.02, 0.015)
PRIOR_TRIES = 20.0
# Log probability of a token after a token that has not been verified yet
UNKNOWN = -9.0


def rank_paths(depth: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """Return the most likely candidates of a complete tree as (parent, rank, depth), by level.

    Args:
        depth: depth of the deepest candidate.
        width: maximum number of children of a node.
    """
    paths, queue = [], [(-math.log(PRIOR_RATES[rank]), (rank,)) for rank in range(min(width, NUM_KEPT))]
    while queue and len(paths) < NUM_CANDIDATES:
        cost, path = heapq.heappop(queue)
        paths.append(path)
        if len(path) < depth:
            for rank in range(min(width, NUM_KEPT)):
                heapq.heappush(queue, (cost - math.log(PRIOR_RATES[rank]), (*path, rank)))
    paths.sort(key=lambda path: (len(path), path))
    places = {path: place for place, path in enumerate(paths, start=1)} | {(): 0}
    return tuple((places[path[:-1]], path[-1], len(path)) for path in paths)


# Visitors choose depth and width, so the cache is bounded
@functools.lru_cache(64)
def rank_tree(depth: int, width: int, device: torch.device) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, ...]]:
    """Return parents, ranks and depths of `rank_paths`, (candidates,) int64 each, and the boundaries of its levels."""
    paths = rank_paths(depth, width)
    depths = [level for _, _, level in paths]
    ends = accumulate((depths.count(level) for level in range(1, depths[-1] + 1)), initial=0)
    return tuple(torch.tensor(column, device=device) for column in zip(*paths, strict=True)), tuple(ends)


class RecyclingDrafter(Drafter):
    """A drafter without weights: every answer fills its own table."""

    proposers = (Proposer("recycled", "Recycled", "Likely next tokens after the same token, earlier in this answer."),)
    evidence = (("rank", 1),)

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "RecyclingSession":
        return RecyclingSession(prompt.ids[-1:], self.vocab_size)


class RecyclingSession(DraftSession):
    """The table and the hit rates of one answer.

    Args:
        root: (1,) int64, the last committed token.
    """

    def __init__(self, root: Tensor, vocab_size: int) -> None:
        self.root, self.device = root, root.device
        self.num_kept = min(NUM_KEPT, vocab_size)
        self.table = torch.arange(self.num_kept, device=self.device).repeat(vocab_size, 1)
        self.known = torch.zeros(vocab_size, dtype=torch.bool, device=self.device)
        self.hits = [PRIOR_TRIES * rate for rate in PRIOR_RATES]
        self.tries = [PRIOR_TRIES] * NUM_KEPT

    def propose(self, limits: DraftRequest) -> Proposal:
        tree = limits.tree
        candidates, ranks = self._candidates(tree.depth, min(tree.width, self.num_kept))

        def evidence(chosen: Candidates) -> tuple[dict[str, Tensor], Tensor]:
            hit_ranks = torch.where(chosen.depths > 0, ranks[chosen.rows] + 1, torch.nan)
            return {"rank": hit_ranks[:, None].float()}, chosen.proposers

        return best_proposal(self.root, candidates, limits, evidence)

    def _candidates(self, depth: int, width: int) -> tuple[Candidates, Tensor]:
        """Return the tree of ranks filled with tokens from the table, and the rank of each candidate."""
        (parents, ranks, depths), ends = rank_tree(depth, width, self.device)
        logs = [math.log(hit / tried) for hit, tried in zip(self.hits, self.tries, strict=True)]
        rates = torch.tensor(logs, device=self.device)
        token_ids, scores = self.root, torch.zeros(1, device=self.device)
        for start, end in pairwise(ends):
            above, rank = parents[start:end], ranks[start:end]
            parent_ids = token_ids[above]
            estimates = torch.where(self.known[parent_ids], rates[rank], UNKNOWN)
            scores = torch.cat([scores, scores[above] + estimates])
            token_ids = torch.cat([token_ids, self.table[parent_ids, rank]])
        rows = torch.arange(parents.shape[0], device=self.device)
        return Candidates.of(token_ids[1:], parents, depths, scores[1:], rows=rows), ranks

    def observe(self, committed: Committed) -> None:
        self.root = committed.ids[-1:]
        if committed.outcome is None:
            return
        self._count(committed.outcome)
        best = committed.logits.topk(self.num_kept, dim=-1).indices.to(self.device)
        path = [0, *committed.outcome.accepted_path]
        # Nodes of the accepted path come last, so that they overwrite other nodes with the same token
        for nodes in (range(len(committed.outcome.token_ids)), path):
            places = torch.tensor(list(nodes), device=self.device)
            token_ids = torch.tensor([committed.outcome.token_ids[node] for node in nodes], device=self.device)
            self.table[token_ids] = best[places]
            self.known[token_ids] = True

    def _count(self, outcome: Outcome) -> None:
        """Count the ranks that were tested after the nodes of the accepted path, and the hits among them."""
        path = {0, *outcome.accepted_path}
        for node in range(1, len(outcome.token_ids)):
            if outcome.parents[node] in path:
                rank = int(outcome.evidence["rank"][node][0]) - 1
                self.tries[rank] += 1
                self.hits[rank] += node in path

    def rewind(self, length: int) -> None:
        """Do nothing: the state does not depend on the length of the text."""


METHOD = Method(
    name="recycling",
    title="Token Recycling",
    sentence="Proposes likely next tokens after the same token, earlier in this answer; nothing is trained.",
    paper="2408.08696",
    proposers=RecyclingDrafter.proposers,
    needs=Needs(logits=True),
    load=lambda resources: RecyclingDrafter(resources.target.vocab_size),
)
