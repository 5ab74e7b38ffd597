"""DFlash heads (arXiv 2602.06036): a block of mask tokens over states of the target, all of it drafted in one pass."""

from jakiro.heads.dflash import learn, published
from jakiro.heads.dflash.config import DFlashConfig
from jakiro.heads.dflash.network import DFlashHead
from jakiro.heads.kind import HeadKind

DFLASH = HeadKind.of(DFlashConfig, DFlashHead, published, learn, speculators="dflash")
