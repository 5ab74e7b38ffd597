"""Early exit: the target's first four layers and one trained layer draft, the whole target checks.

The honest stand-in for a small draft model where none exists. Drafting by leaving early is Draft & Verify's and
LayerSkip's (arXiv 2309.08168, 2404.16710); there nothing is added but an output function, here one layer is.
"""

from dataclasses import dataclass
from functools import partial

from jakiro.drafting.base import Drafter, FixedBuffers, Method, Needs, Proposer
from jakiro.methods.jakiro import HeadDrafter, load_head

LAYERS_BELOW = 4
PROPOSERS = (Proposer("exit", "Early exit", "The target's own first layers and one trained layer on top of them."),)


@dataclass(eq=False)
class ExitDrafter(HeadDrafter):
    """Drafts with a head that stands on the target's first layers."""

    def __post_init__(self) -> None:
        self.proposers = PROPOSERS

    def fixed(self, buffers: FixedBuffers) -> Drafter | None:
        """None: its passes run beside captured ones of the target."""
        return None


NEEDS = Needs(head=("stacked",), layers=True)
METHOD = Method(
    name="exit",
    title="Early exit",
    sentence="The target's first four layers and one trained layer draft a tree; the whole target checks it.",
    paper="2404.16710",
    proposers=PROPOSERS,
    needs=NEEDS,
    load=partial(load_head, ExitDrafter, needs=NEEDS),
    trains={"network": "stacked", "num_experts": 1, "fusion": "summed", "exit_layers": (LAYERS_BELOW,)},
)
