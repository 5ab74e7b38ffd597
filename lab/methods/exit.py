"""Early exit: the target's first four layers and one trained layer draft, and the whole target verifies.

It replaces a small draft model where none exists. Draft & Verify and LayerSkip (arXiv 2309.08168, 2404.16710) also
draft by early exit; they add only an output function, this method adds one layer.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.heads.kind import HeadKind
from lab.layers.exit_head import ExitConfig, ExitHead

LAYERS_BELOW = 4
PROPOSERS = (Proposer("exit", "Early exit", "The target's first layers and one trained layer on top of them."),)
KIND = HeadKind(config=ExitConfig, network=ExitHead)
exit_drafter = partial(HeadDrafter, proposers=PROPOSERS, has_evidence=False)


def asks_for(method: str) -> str:
    """Return what a method needs if `lab.training.exits` trains its heads."""
    return f"a head that `python -m lab.training.exits --method {method}` trains, given with --head"


METHOD = head_method(
    exit_drafter,
    Needs(head=(KIND.name,), layers=True),
    name="exit",
    title="Early exit",
    sentence="The target's first four layers and one trained layer draft a tree; the whole target checks it.",
    paper="2404.16710",
    proposers=PROPOSERS,
    kind=KIND,
    trains={"exit_layers": (LAYERS_BELOW,)},
    asks=asks_for("exit"),
)
