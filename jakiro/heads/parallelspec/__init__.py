"""ParallelSpec heads (arXiv 2410.05589): a dense layer with mask tokens that draft all levels in one pass."""

from jakiro.heads import layer_learning
from jakiro.heads.kind import HeadKind
from jakiro.heads.parallelspec import learn
from jakiro.heads.parallelspec.config import ParallelSpecConfig
from jakiro.heads.parallelspec.network import MaskedHead

PARALLELSPEC = HeadKind.of(ParallelSpecConfig, MaskedHead, layer_learning, learn)
