"""Jakiro heads (arXiv 2502.06282): one layer with a mixture of experts that predicts the target's next features."""

from jakiro.heads import layer_learning
from jakiro.heads.jakiro import published
from jakiro.heads.jakiro.config import JakiroConfig
from jakiro.heads.jakiro.network import JakiroHead
from jakiro.heads.kind import HeadKind

JAKIRO = HeadKind.of(JakiroConfig, JakiroHead, published, layer_learning)
