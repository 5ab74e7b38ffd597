"""ParallelSpec (arXiv 2410.05589): mask tokens after the last token draft all levels in one pass of a draft layer."""

from functools import partial

from jakiro.drafting.base import Method, Needs, Proposer
from jakiro.drafting.parallel import ProductGrower, row_proposers
from jakiro.heads.parallelspec import MaskedHead
from jakiro.methods.jakiro import HeadDrafter, load_head

MASKS = 4


def proposers_of(count: int) -> tuple[Proposer, ...]:
    """The root's own row, and those of `count` masks."""
    own = Proposer("root_row", "Token's row", "The row of the last token, as in other draft layers.")
    return (own, *row_proposers("mask", "Mask", "The row of mask token {number} of the same pass.", count))


def masked_drafter(head: MaskedHead, info: dict | None = None) -> HeadDrafter:
    """Drafts all levels in the pass that reads the new tokens."""
    return HeadDrafter(head, info, ProductGrower, proposers_of(head.config.num_parallel), tells=False)


NEEDS = Needs(head=("masks",))
METHOD = Method(
    name="parallelspec",
    title="ParallelSpec",
    sentence="One pass of a small layer with mask tokens drafts all levels of a tree.",
    paper="2410.05589",
    proposers=proposers_of(MASKS),
    needs=NEEDS,
    load=partial(load_head, masked_drafter, needs=NEEDS),
    trains={"network": "masks", "num_parallel": MASKS, "num_experts": 1, "fusion": "summed"},
)
