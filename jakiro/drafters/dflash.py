"""DFlash (arXiv 2602.06036): one pass of mask tokens drafts a block of tokens.

The published drafter proposes a chain, which is a tree of width 1. Larger trees contain the best nodes of the product
of all rows' lists (DDTree, arXiv 2604.12989), ranked with the target's noise.
"""

from functools import partial

import torch

from jakiro.drafters.base import Needs, Proposal, Proposer
from jakiro.drafters.candidates import Candidates
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.drafters.parallel import ProductGrower, row_proposers
from jakiro.heads.dflash import DFLASH

BLOCK = 16


def proposers_of(count: int) -> tuple[Proposer, ...]:
    """Return a proposer for each row of a block."""
    return row_proposers("block", "Block", "Row {number} of a block that is drafted in one pass.", count)


class BlockGrower(ProductGrower):
    """A grower of trees from the rows of a block."""

    def grow(self) -> Proposal:
        self.outputs[0] = self.head.block(self.root_token, self.cache)
        return super().grow()

    def _best(self, level: Candidates) -> torch.Tensor:
        """Return as many nodes as the tree has: nodes cost no pass, and further nodes cannot be in the tree."""
        return level.scores.sort(descending=True, stable=True).indices[: self.nodes - 1]


block_drafter = partial(
    HeadDrafter, grower=BlockGrower, proposers=lambda config: proposers_of(config.num_levels), captured=True
)

METHOD = head_method(
    block_drafter,
    Needs(head=(DFLASH.name,)),
    name="dflash",
    title="DFlash",
    sentence="One pass of mask tokens drafts a whole block of tokens; the target checks the best tree of them.",
    paper="2602.06036",
    proposers=proposers_of(BLOCK - 1),
    asks="a published DFlash head made for the target, given with --head",
)
