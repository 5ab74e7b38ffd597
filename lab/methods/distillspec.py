"""DistillSpec: a draft that was taught by the target on text which the draft itself wrote (arXiv 2310.08461).

The paper distils one small model into being a draft for a large one and compares texts and divergences. The draft is
that of `exit.py`; `python -m lab.training.exits --method distillspec` teaches it on what `lab.training.own_text` wrote.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.heads.kind import HeadKind
from lab.layers.exit_head import DistilledConfig, ExitHead
from lab.methods import exit

PROPOSERS = (
    Proposer("distilled", "Distilled draft", "The target's first layers and one layer that learned from its own text."),
)
KIND = HeadKind(config=DistilledConfig, network=ExitHead)
distilled_drafter = partial(HeadDrafter, proposers=PROPOSERS, has_evidence=False)

METHOD = head_method(
    distilled_drafter,
    Needs(head=(KIND.name,), layers=True),
    name="distillspec",
    title="DistillSpec",
    sentence="Early exit whose trained layer was corrected by the target on text that the draft itself wrote.",
    paper="2310.08461",
    proposers=PROPOSERS,
    kind=KIND,
    trains=exit.METHOD.trains,
)
