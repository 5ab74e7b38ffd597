"""Medusa (arXiv 2401.10774): an MLP for each level reads the target's last feature, none waits for another.

The paper's trees are fixed; here the likeliest part of the product of all levels' lists is kept, for each step anew.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.drafters.parallel import ProductGrower, row_proposers
from jakiro.heads.medusa import MEDUSA

LEVELS = 5


def proposers_of(count: int) -> tuple[Proposer, ...]:
    """An MLP for each level."""
    return row_proposers("mlp", "MLP", "Guesses token {number} after the last one from the target's feature.", count)


parallel_drafter = partial(
    HeadDrafter, grower=ProductGrower, proposers=lambda config: proposers_of(config.num_mlps), has_evidence=False
)

METHOD = head_method(
    parallel_drafter,
    Needs(head=(MEDUSA.name,)),
    name="medusa",
    title="Medusa",
    sentence="Small networks guess all following tokens at once from the target's last feature.",
    paper="2401.10774",
    proposers=proposers_of(LEVELS),
    trains={"num_mlps": LEVELS},
)
