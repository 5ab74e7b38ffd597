"""Medusa heads (arXiv 2401.10774): an MLP for each level reads the target's last feature."""

from jakiro.heads.kind import HeadKind
from jakiro.heads.medusa.config import MedusaConfig
from jakiro.heads.medusa.learn import levels, start, whitening
from jakiro.heads.medusa.network import MedusaHead
from jakiro.heads.medusa.published import convert, recognise

MEDUSA = HeadKind(
    config=MedusaConfig,
    network=MedusaHead,
    recognise=recognise,
    convert=convert,
    levels=levels,
    start=start,
    whitening=whitening,
)
