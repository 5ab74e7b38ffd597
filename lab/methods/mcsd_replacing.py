"""MCSD with independent draws, the first form in its paper; equal siblings become one node.

The target's noise g is an exponential time E = exp(−g). The smallest of K independent times has the law of one time
divided by K, and each of the K is the smallest with the same probability; the others wait for another such time. So,
given E, one random draw has E ÷ K, and all others have E ÷ K plus a wait. Each draw takes the token with the smallest
time ÷ q. All are independent draws of q, and the target's choice keeps its own noise (list matching, arXiv 2506.05632).
At temperature 0 all draws are the same token.
"""

from functools import partial

import torch
from torch import Tensor

from jakiro.core.noise import KeyedNoise
from jakiro.drafters.candidates import Candidates
from jakiro.drafters.head import LAYERS, head_method
from jakiro.drafters.tree_growth import Children, Experts, Scores
from lab.published.mcsd import SAMPLES, StaticGrower, static_drafter

# Added to the seed for the noise that splits a time; the answer's own noise uses the plain seed
_STREAM = 0x5DEECE66D


def split_times(noise: Tensor, seed: int, position: int, draws: int) -> Tensor:
    """Return independent exponential times that are consistent with the target's noise.

    Args:
        noise: (tokens,) Gumbel noise of the target's choice.

    Returns:
        (draws, tokens).
    """
    token_ids = torch.arange(noise.shape[0], device=noise.device)
    places = torch.full((), position, dtype=torch.int64, device=noise.device)
    keyed = [KeyedNoise((seed + _STREAM * (1 + stream)) % 2**63) for stream in range(draws + 1)]
    first = keyed[0].hash(places, token_ids).remainder(draws)
    waits = torch.stack([(-stream_noise.at(places, token_ids)).exp() for stream_noise in keyed[1:]])
    least = torch.arange(draws, device=noise.device)[:, None] == first
    return (-noise).exp() / draws + waits.masked_fill(least, 0.0)


class ReplacingGrower(StaticGrower):
    """Grows static trees of independent draws."""

    def _children(self, scores: Scores, depth: int, contrastive: bool = False) -> Children:
        log_q, offsets = scores.mixed() if isinstance(scores, Experts) else (scores, None)
        if self.noise is None:
            indices = log_q.argmax(-1, keepdim=True).repeat(1, self.width)
        else:
            times = split_times(self.noise[depth - 1], self.sampling.seed, self.root_position + depth, self.width)
            indices = (log_q[:, None] - times.log()).argmax(-1)
        earlier = torch.ones((self.width, self.width), dtype=torch.bool, device=self.device).tril(-1)
        repeated = ((indices[:, :, None] == indices[:, None, :]) & earlier).any(-1)
        estimates = log_q.log_softmax(-1).gather(-1, indices)
        proposers = torch.zeros_like(indices) if offsets is None else scores.proposers(offsets, indices)
        kept = estimates.masked_fill(repeated, -torch.inf)
        return Children(self.head.draft_token_ids[indices], kept, estimates.exp(), proposers)

    def _num_kept(self, candidates: Candidates) -> int:
        return sum(torch.isfinite(candidates.scores).tolist())


replacing_drafter = partial(static_drafter, grower=ReplacingGrower)

METHOD = head_method(
    replacing_drafter,
    LAYERS,
    name="mcsd_replacing",
    title="MCSD, independent draws",
    sentence="MCSD with independent draws for each position, so that some candidates are equal.",
    paper="2401.06706",
    proposers=SAMPLES,
)
