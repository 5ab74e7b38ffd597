"""DFlash heads (arXiv 2602.06036): a block of mask tokens over states of the target, all of it drafted in one pass."""

from jakiro.heads.dflash.config import DFlashConfig
from jakiro.heads.dflash.learn import levels, start
from jakiro.heads.dflash.network import DFlashHead
from jakiro.heads.dflash.published import convert, recognise
from jakiro.heads.kind import HeadKind

DFLASH = HeadKind(
    config=DFlashConfig,
    network=DFlashHead,
    recognise=recognise,
    convert=convert,
    speculators="dflash",
    levels=levels,
    start=start,
)
