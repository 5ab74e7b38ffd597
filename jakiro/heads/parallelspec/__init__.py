"""ParallelSpec heads (arXiv 2410.05589): a dense layer with mask tokens that draft all levels in one pass."""

from jakiro.heads.kind import HeadKind
from jakiro.heads.layer_learning import whitening
from jakiro.heads.parallelspec.config import ParallelSpecConfig
from jakiro.heads.parallelspec.learn import levels, start
from jakiro.heads.parallelspec.network import MaskedHead

PARALLELSPEC = HeadKind(config=ParallelSpecConfig, network=MaskedHead, levels=levels, start=start, whitening=whitening)
