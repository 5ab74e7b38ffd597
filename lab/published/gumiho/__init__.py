"""Gumiho heads (arXiv 2503.10135): two serial levels, then MLPs for all deeper levels at once."""

from jakiro.heads.kind import HeadKind
from lab.published.gumiho import learn, published
from lab.published.gumiho.config import GumihoConfig
from lab.published.gumiho.network import GumihoHead

GUMIHO = HeadKind.of(GumihoConfig, GumihoHead, published, learn)
