"""Medusa heads (arXiv 2401.10774): an MLP for each level reads the target's last feature."""

from jakiro.heads.kind import HeadKind
from jakiro.heads.medusa import learn, published
from jakiro.heads.medusa.config import MedusaConfig
from jakiro.heads.medusa.network import MedusaHead

MEDUSA = HeadKind.of(MedusaConfig, MedusaHead, published, learn)
