"""EAGLE-3 heads (arXiv 2503.01840): layers that read three hidden states of the target."""

from jakiro.heads.eagle3.config import Eagle3Config
from jakiro.heads.eagle3.network import Eagle3Head
from jakiro.heads.eagle3.published import convert, recognise
from jakiro.heads.kind import HeadKind

EAGLE3 = HeadKind(config=Eagle3Config, network=Eagle3Head, recognise=recognise, convert=convert, speculators="eagle3")
