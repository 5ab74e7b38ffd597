"""EAGLE-3 heads (arXiv 2503.01840): layers that read three hidden states of the target."""

from jakiro.heads.eagle3 import published
from jakiro.heads.eagle3.config import Eagle3Config
from jakiro.heads.eagle3.network import Eagle3Head
from jakiro.heads.kind import HeadKind

EAGLE3 = HeadKind.of(Eagle3Config, Eagle3Head, published, speculators="eagle3")
