"""Early exit: the target's first four layers and one trained layer draft, the whole target checks.

The honest stand-in for a small draft model where none exists. Drafting by leaving early is Draft & Verify's and
LayerSkip's (arXiv 2309.08168, 2404.16710); there nothing is added but an output function, here one layer is.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.heads.kind import HeadKind
from lab.layers.exit_head import ExitConfig, ExitHead

LAYERS_BELOW = 4
PROPOSERS = (Proposer("exit", "Early exit", "The target's own first layers and one trained layer on top of them."),)
KIND = HeadKind(config=ExitConfig, network=ExitHead)
exit_drafter = partial(HeadDrafter, proposers=PROPOSERS, has_evidence=False)

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
)
