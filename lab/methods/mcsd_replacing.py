"""MCSD with candidates that are independent draws, as its paper has them first; equal siblings become one node.

The target's noise g is an exponential time E = exp(−g). Of K independent times the least is one divided by K, and any
of the K has it with the same chance, the others waiting for a further time each. So, given E, draw J has E ÷ K, all
others E ÷ K and a wait; each takes the token with the least time ÷ q. All are independent draws of q, and the target's
choice has its own noise unchanged (list matching, arXiv 2506.05632). At temperature 0 they are one and the same token.
"""

from functools import partial

import torch
from torch import Tensor

from jakiro.core.noise import KeyedNoise
from jakiro.drafters.candidates import Candidates
from jakiro.drafters.head import LAYERS, head_method
from jakiro.drafters.tree_growth import Children, Experts, Scores
from lab.published.mcsd import SAMPLES, StaticGrower, static_drafter

# Keys of the noise that splits a time; the answer's own noise has the seed alone
_STREAM = 0x5DEECE66D


def split_times(noise: Tensor, seed: int, position: int, draws: int) -> Tensor:
    """(draws, tokens) independent exponential times of which the target's own noise, (tokens,) Gumbel, is made."""
    token_ids = torch.arange(noise.shape[0], device=noise.device)
    places = torch.full((), position, dtype=torch.int64, device=noise.device)
    keyed = [KeyedNoise((seed + _STREAM * (1 + stream)) % 2**63) for stream in range(draws + 1)]
    first = keyed[0].hash(places, token_ids).remainder(draws)
    waits = torch.stack([(-each.at(places, token_ids)).exp() for each in keyed[1:]])
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
        return Children(
            self.head.draft_token_ids[indices],
            estimates.masked_fill(repeated, -torch.inf),
            estimates.exp(),
            proposers,
        )

    def _num_kept(self, candidates: Candidates) -> int:
        return sum(torch.isfinite(candidates.scores).tolist())


replacing_drafter = partial(static_drafter, grower=ReplacingGrower)

METHOD = head_method(
    replacing_drafter,
    LAYERS,
    name="mcsd_replacing",
    title="MCSD, independent draws",
    sentence="MCSD whose candidates at one place are drawn independently, so that some of them are the same.",
    paper="2401.06706",
    proposers=SAMPLES,
)
