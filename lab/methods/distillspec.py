"""DistillSpec: a draft trained by the target on text written by the draft (arXiv 2310.08461).

The paper distils a small model into a draft for a large one and compares texts and divergences. The network is that of
`exit.py`; `python -m lab.training.exits --method distillspec` trains it on the text of `lab.training.own_text`.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.heads.kind import HeadKind
from lab.layers.exit_head import DistilledConfig, ExitHead
from lab.methods import exit

PROPOSERS = (
    Proposer("distilled", "Distilled draft", "The target's first layers and a layer trained on its own text."),
)
KIND = HeadKind(config=DistilledConfig, network=ExitHead)
distilled_drafter = partial(HeadDrafter, proposers=PROPOSERS, has_evidence=False)

METHOD = head_method(
    distilled_drafter,
    Needs(head=(KIND.name,), layers=True),
    name="distillspec",
    title="DistillSpec",
    sentence="Early exit with a layer that the target trained on text written by the draft.",
    paper="2310.08461",
    proposers=PROPOSERS,
    kind=KIND,
    trains=exit.METHOD.trains,
    asks=exit.asks_for("distillspec"),
)
