"""Improved MCSD: static trees whose drafting stops early where nothing more is likely to be kept (arXiv 2409.10644).

The paper trains a small network that says how likely each drafted token is accepted. The estimates of a calibrated head
say that already, so the rule reads them: no further level where no node of the newest one has a chance above the
threshold. The paper also begins a tree with several tokens of the target and keeps the branch that lasts longest: that
changes the text, because only one of them is the target's choice. Here the tree begins with that one, the root; what
the others would have changed is counted in lab/README.md.
"""

import math
from functools import partial

from jakiro.drafters.head import LAYERS, head_method
from lab.published.mcsd import SAMPLES, StaticGrower, static_drafter

THRESHOLD = 0.4


class StoppingGrower(StaticGrower):
    """Grows static trees no deeper than they promise to be kept."""

    def _stops(self) -> bool:
        return max(self.levels[-1].scores.tolist()) < math.log(THRESHOLD)


stopping_drafter = partial(static_drafter, grower=StoppingGrower)

METHOD = head_method(
    stopping_drafter,
    LAYERS,
    name="mcsd_improved",
    title="Improved MCSD",
    sentence="MCSD that stops drafting where nothing further is likely to be kept.",
    paper="2409.10644",
    proposers=SAMPLES,
)
