"""Medusa (arXiv 2401.10774): an MLP for each level reads the target's last feature, independently of other levels.

The paper's trees have a fixed shape; here each step selects the best part of the product of all levels' lists.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.drafters.parallel import ProductGrower, row_proposers
from jakiro.heads.medusa import MEDUSA

LEVELS = 5


def proposers_of(count: int) -> tuple[Proposer, ...]:
    """Return a proposer for the MLP of each level."""
    return row_proposers("mlp", "MLP", "Guesses token {number} after the last one from the target's feature.", count)


parallel_drafter = partial(HeadDrafter, grower=ProductGrower, proposers=lambda config: proposers_of(config.num_mlps))

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
