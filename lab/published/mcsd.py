"""MCSD: several candidates for each position of a static tree, verified together (arXiv 2401.06706).

The number of children of a node depends only on its depth, and nothing is ranked again. Above temperature 0, the k best
of log q + g have exactly the law of k draws from q without replacement, where g is the noise of the target's own
choice. One comparison with that choice decides which of them is accepted, so the paper's test by p ÷ q is not needed.
The paper drafts with a small model; this method uses the target's head, or a small model if one is given.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from jakiro.core.tree import ancestor_mask
from jakiro.drafters.base import Needs, Proposal
from jakiro.drafters.candidates import Candidates, best_tree
from jakiro.drafters.head import LAYERS, HeadDrafter, head_method
from jakiro.drafters.parallel import row_proposers
from jakiro.drafters.tree_growth import TreeGrower
from jakiro.heads.model_head import ModelConfig

# Assumed rate at which the target's choice is among 1, 2, … children; it decides the shape of trees
HIT_RATES = (0.6, 0.75, 0.83, 0.88, 0.91, 0.93, 0.945, 0.955)
# Visitors can choose hundreds of thousands of tree bounds; this many shapes are cached
KNOWN_SHAPES = 64
SAMPLES = row_proposers(
    "sample", "Sample", "Draw {number} of the draft at this position, without replacement.", len(HIT_RATES)
)


@lru_cache(KNOWN_SHAPES)
def shape_for(width: int, depth: int, nodes: int) -> tuple[int, ...]:
    """Return the children per node by depth of the static tree with the most expected accepted tokens.

    The number of children never grows with depth.

    Args:
        width: maximum number of children of a node.
        depth: maximum number of levels.
        nodes: maximum number of nodes, root included.
    """

    def shapes(most: int, levels: int, parents: int, room: int) -> Iterator[tuple[float, tuple[int, ...]]]:
        yield 0.0, ()
        for count in range(1, most + 1 if levels else 1):
            if parents * count > room:
                return
            rest = shapes(count, levels - 1, parents * count, room - parents * count)
            yield from ((HIT_RATES[count - 1] * (1 + below), (count, *deeper)) for below, deeper in rest)

    return max(shapes(min(width, len(HIT_RATES)), depth, 1, nodes - 1))[1]


@lru_cache(KNOWN_SHAPES)
def drafted_mask(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return a (candidates, candidates) bool mask: each attends to itself and its ancestors.

    The mask of a tree with fewer levels is its upper left corner.
    """
    parents, first = [-1], 0
    for count in shape:
        above = range(first, len(parents))
        first = len(parents)
        parents += [node for node in above for _ in range(count)]
    return ancestor_mask(torch.tensor(parents, device=device), len(shape))[1:, 1:]


class StaticGrower(TreeGrower):
    """Grows a static tree: every node of a level is expanded, and all drafted nodes are in the tree."""

    def __init__(self, head, cache, root, root_token, inputs) -> None:
        inputs = replace(inputs, tree=replace(inputs.tree, contrastive=False))
        super().__init__(head, cache, root, root_token, inputs)
        self.shape = shape_for(self.width, self.depth, self.nodes)
        self.mask = drafted_mask(self.shape, self.device)

    def grow(self) -> Proposal:
        self._add_level(None)
        for depth in range(1, len(self.shape)):
            if self._stops():
                break
            newest, end = self.levels[-1], sum(level.count for level in self.levels)
            everyone = torch.arange(newest.count, device=self.device)
            self._expand(everyone, self._rows_in_pass(everyone), self.mask[end - newest.count : end, :end], depth)
            self._add_level(everyone)
        return self._select()

    def _stops(self) -> bool:
        """Return whether drafting stops after the newest level."""
        return False

    def _add_level(self, frontier: Tensor | None) -> None:
        """Append the children of all rows of the newest pass."""
        self.width = self.shape[len(self.levels)]
        children = self._children(self._main_scores(self.outputs[-1]), len(self.levels) + 1)
        self._add(children, frontier)

    def _select(self) -> Proposal:
        """Return all candidates; the proposer is the rank among siblings."""
        ranks = [
            torch.arange(count, device=self.device).repeat(level.count // count)
            for count, level in zip(self.shape, self.levels, strict=False)
        ]
        candidates = replace(Candidates.joined(self.levels), proposers=torch.cat(ranks))
        return Proposal(best_tree(self.root_token, candidates, self._num_kept(candidates), len(self.levels)))

    def _num_kept(self, candidates: Candidates) -> int:
        """Return the number of best candidates that become nodes."""
        return candidates.count


# The proposer of a node is its rank among its siblings
static_drafter = partial(HeadDrafter, grower=StaticGrower, proposers=SAMPLES, has_evidence=False)

METHOD = head_method(
    static_drafter,
    Needs(head=(*LAYERS.head, ModelConfig.kind)),
    name="mcsd",
    title="MCSD",
    sentence="Drafts a tree of a fixed shape with several candidates for each position; all are checked at once.",
    paper="2401.06706",
    proposers=SAMPLES,
)
