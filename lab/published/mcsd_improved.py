"""Improved MCSD: static trees whose drafting stops early if acceptance becomes unlikely (arXiv 2409.10644).

The paper trains a small network that predicts the acceptance of each drafted token. A calibrated head already estimates
it, so the rule uses these estimates: no further level if no node of the newest one has a probability above the
threshold. The paper also starts a tree with several target tokens and keeps the longest branch. This changes the text,
because only one of them is the target's choice; here the tree starts with that choice, the root. lab/README.md counts
the changes that the other tokens would cause.
"""

import math
from functools import partial

from jakiro.drafters.head import LAYERS, head_method
from lab.published.mcsd import SAMPLES, StaticGrower, static_drafter

THRESHOLD = 0.4


class StoppingGrower(StaticGrower):
    """Grows static trees only as deep as acceptance is likely."""

    def _stops(self) -> bool:
        return max(self.levels[-1].scores.tolist()) < math.log(THRESHOLD)


stopping_drafter = partial(static_drafter, grower=StoppingGrower)

METHOD = head_method(
    stopping_drafter,
    LAYERS,
    name="mcsd_improved",
    title="Improved MCSD",
    sentence="MCSD that stops drafting if acceptance becomes unlikely.",
    paper="2409.10644",
    proposers=SAMPLES,
)
