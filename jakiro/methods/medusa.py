"""Medusa (arXiv 2401.10774): an MLP for each level reads the target's last feature, none waits for another.

The paper's trees are fixed; here the likeliest part of the product of all levels' lists is kept, for each step anew.
"""

from functools import partial

from jakiro.drafting.base import Method, Needs, Proposer
from jakiro.drafting.parallel import ProductGrower, row_proposers
from jakiro.heads.medusa import MedusaHead
from jakiro.methods.jakiro import HeadDrafter, load_head

LEVELS = 5


def proposers_of(count: int) -> tuple[Proposer, ...]:
    """An MLP for each level."""
    return row_proposers("mlp", "MLP", "Guesses token {number} after the last one from the target's feature.", count)


def parallel_drafter(head: MedusaHead, info: dict | None = None) -> HeadDrafter:
    """Drafts all levels from one feature."""
    return HeadDrafter(head, info, ProductGrower, proposers_of(head.config.levels), tells=False)


NEEDS = Needs(head=("mlps",))
METHOD = Method(
    name="medusa",
    title="Medusa",
    sentence="Small networks guess all following tokens at once from the target's last feature.",
    paper="2401.10774",
    proposers=proposers_of(LEVELS),
    needs=NEEDS,
    load=partial(load_head, parallel_drafter, needs=NEEDS),
    trains={"network": "mlps", "num_layers": 0, "num_parallel": LEVELS, "num_experts": 1, "fusion": "summed"},
)
