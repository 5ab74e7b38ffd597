"""DistillSpec: a draft trained by the target on text written by the draft (arXiv 2310.08461).

The paper distils a small model into a draft for a large one and compares texts and divergences. The network is that of
`exit.py`; `python -m lab.training.exits --method distillspec` trains it on the text of `lab.training.own_text`.
"""

from jakiro.drafters.base import Proposer
from lab.layers.exit_head import DistilledConfig
from lab.methods.exit import exit_method

PROPOSERS = (
    Proposer("distilled", "Distilled draft", "The target's first layers and a layer trained on its own text."),
)

METHOD = exit_method(
    "distillspec",
    DistilledConfig,
    PROPOSERS,
    title="DistillSpec",
    sentence="Early exit with a layer that the target trained on text written by the draft.",
    paper="2310.08461",
)
