"""Gumiho heads (arXiv 2503.10135): two serial levels, then MLPs for all further levels at once."""

from jakiro.heads.gumiho import learn, published
from jakiro.heads.gumiho.config import GumihoConfig
from jakiro.heads.gumiho.network import GumihoHead
from jakiro.heads.kind import HeadKind

GUMIHO = HeadKind.of(GumihoConfig, GumihoHead, published, learn)
