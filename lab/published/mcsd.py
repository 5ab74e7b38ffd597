"""MCSD: several candidates at each place of a static tree, tested together (arXiv 2401.06706).

How many children each node has is settled by its depth before anything is drafted; nothing is ranked again. At a
temperature, the k best of log q + g have exactly the law of k draws from q without replacement, g being the noise that
the target's own choice meets. Which of them is kept is one comparison with that choice; the paper's test by p ÷ q is
not needed. The paper drafts with a small model; this drafts with the target's head, or with
such a model where one is given.
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

# How often the target's choice is assumed to be among so many children, to settle a tree's shape
HIT_RATES = (0.6, 0.75, 0.83, 0.88, 0.91, 0.93, 0.945, 0.955)
# Bounds of trees are visitors' settings, of which there are hundreds of thousands: so many are remembered
KNOWN_SHAPES = 64
SAMPLES = row_proposers(
    "sample", "Sample", "Draw {number} of the draft, without replacement, at its place.", len(HIT_RATES)
)


@lru_cache(KNOWN_SHAPES)
def shape_for(width: int, depth: int, nodes: int) -> tuple[int, ...]:
    """Children per node by depth, never more further down: the static tree that should accept most.

    Args:
        width: children of a node at most. depth: levels at most. nodes: of the tree at most, root included.
    """

    def shapes(most: int, levels: int, parents: int, room: int) -> Iterator[tuple[float, tuple[int, ...]]]:
        yield 0.0, ()
        for count in range(1, most + 1 if levels else 1):
            if parents * count > room:
                return
            rest = shapes(count, levels - 1, parents * count, room - parents * count)
            yield from ((HIT_RATES[count - 1] * (1 + below), (count, *further)) for below, further in rest)

    return max(shapes(min(width, len(HIT_RATES)), depth, 1, nodes - 1))[1]


@lru_cache(KNOWN_SHAPES)
def drafted_mask(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """(candidates, candidates) bool, which see themselves and their ancestors; a tree of fewer levels has a corner."""
    parents, first = [-1], 0
    for count in shape:
        above = range(first, len(parents))
        first = len(parents)
        parents += [node for node in above for _ in range(count)]
    return ancestor_mask(torch.tensor(parents, device=device), len(shape))[1:, 1:]


class StaticGrower(TreeGrower):
    """Grows a static tree: every node of a level is expanded, and the tree is all that was drafted."""

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
        """Whether no further level is drafted."""
        return False

    def _add_level(self, frontier: Tensor | None) -> None:
        """Append the children of all rows of the newest pass."""
        self.width = self.shape[len(self.levels)]
        children = self._children(self._main_scores(self.outputs[-1]), len(self.levels) + 1)
        self._add(children, frontier)

    def _select(self) -> Proposal:
        """All candidates, each named by its place among its siblings."""
        ranks = [
            torch.arange(count, device=self.device).repeat(level.count // count)
            for count, level in zip(self.shape, self.levels, strict=False)
        ]
        candidates = replace(Candidates.joined(self.levels), proposers=torch.cat(ranks))
        return Proposal(best_tree(self.root_token, candidates, self._num_kept(candidates), len(self.levels)))

    def _num_kept(self, candidates: Candidates) -> int:
        """How many of the candidates, the best ones, become nodes."""
        return candidates.count


# Nodes name their place among their siblings
static_drafter = partial(HeadDrafter, grower=StaticGrower, proposers=SAMPLES, has_evidence=False)

METHOD = head_method(
    static_drafter,
    Needs(head=(*LAYERS.head, ModelConfig.kind)),
    name="mcsd",
    title="MCSD",
    sentence="Drafts a tree of a fixed shape, several candidates at each place, and has all of them checked at once.",
    paper="2401.06706",
    proposers=SAMPLES,
)
