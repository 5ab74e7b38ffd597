"""MCSD with a small draft model, as in its paper (arXiv 2401.06706); the early exit of `exit.py` is the small model."""

from jakiro.drafters.head import head_method
from lab.methods import exit
from lab.published.mcsd import SAMPLES, static_drafter

METHOD = head_method(
    static_drafter,
    exit.METHOD.needs,
    name="mcsd_exit",
    title="MCSD, early exit",
    sentence="MCSD's tree of a fixed shape, drafted by the target's first layers instead of a head.",
    paper="2401.06706",
    proposers=SAMPLES,
    asks=exit.METHOD.asks,
)
