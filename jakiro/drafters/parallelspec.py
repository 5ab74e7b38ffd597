"""ParallelSpec (arXiv 2410.05589): mask tokens after the last token draft all levels in one pass of a draft layer."""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.drafters.parallel import ProductGrower, row_proposers
from jakiro.heads.parallelspec import PARALLELSPEC

MASKS = 4


def proposers_of(count: int) -> tuple[Proposer, ...]:
    """Return the proposers of the root's row and of `count` masks."""
    root_row = Proposer("root_row", "Token's row", "The row of the last token, as in other draft layers.")
    return (root_row, *row_proposers("mask", "Mask", "The row of mask token {number} of the same pass.", count))


masked_drafter = partial(HeadDrafter, grower=ProductGrower, proposers=lambda config: proposers_of(config.num_masks))

METHOD = head_method(
    masked_drafter,
    Needs(head=(PARALLELSPEC.name,)),
    name="parallelspec",
    title="ParallelSpec",
    sentence="One pass of a small layer with mask tokens drafts all levels of a tree.",
    paper="2410.05589",
    proposers=proposers_of(MASKS),
    trains={"num_masks": MASKS},
)
