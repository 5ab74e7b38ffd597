"""Gumiho heads (arXiv 2503.10135): two serial levels, then MLPs for all further levels at once."""

from jakiro.heads.gumiho.config import GumihoConfig
from jakiro.heads.gumiho.learn import levels, start, whitening
from jakiro.heads.gumiho.network import GumihoHead
from jakiro.heads.gumiho.published import convert, recognise
from jakiro.heads.kind import HeadKind

GUMIHO = HeadKind(
    config=GumihoConfig,
    network=GumihoHead,
    recognise=recognise,
    convert=convert,
    levels=levels,
    start=start,
    whitening=whitening,
)
