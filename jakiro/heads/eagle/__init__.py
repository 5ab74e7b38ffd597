"""EAGLE-1 and EAGLE-2 heads (arXiv 2406.16858): one dense layer that continues from its own features."""

from jakiro.heads import layer_learning
from jakiro.heads.eagle import published
from jakiro.heads.eagle.config import EagleConfig
from jakiro.heads.eagle.network import EagleHead
from jakiro.heads.kind import HeadKind

EAGLE = HeadKind.of(EagleConfig, EagleHead, published, layer_learning)
