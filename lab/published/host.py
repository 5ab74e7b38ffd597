"""Noise and proposals for drafters that score a few tokens on the host."""

import math
from collections.abc import Sequence

from torch import Tensor

from jakiro.drafters.base import DraftRequest, Proposal
from jakiro.drafters.candidates import Candidates, Evidence, best_tree

# Constants of SplitMix64, as in `jakiro.core.noise`
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL_BITS = 2**64 - 1


def gumbel_of(seed: int, position: int, token_ids: Sequence[int]) -> list[float]:
    """Return `KeyedNoise.at` for one position; 15 instead of 185 µs for 8 tokens."""
    keyed = _mix(_mix(seed) + position)
    nodes = []
    for token_id in token_ids:
        uniform = ((_mix(keyed + (token_id + 1) * _GOLDEN) >> 12) + 0.5) * 2.0**-52
        nodes.append(-math.log(-math.log(uniform)))
    return nodes


def _mix(x: int) -> int:
    """Return the finaliser of a number as an unsigned number."""
    x &= _ALL_BITS
    x = (x >> 30 ^ x) * _MIX_1 & _ALL_BITS
    x = (x >> 27 ^ x) * _MIX_2 & _ALL_BITS
    return x >> 31 ^ x


def best_proposal(
    root_token: Tensor, candidates: Candidates, limits: DraftRequest, evidence: Evidence | None = None
) -> Proposal:
    """Return the tree of the best candidates within the limits; see `best_tree`."""
    most = min(limits.tree.nodes - 1, candidates.count)
    return Proposal(best_tree(root_token, candidates, most, limits.tree.depth, evidence))
