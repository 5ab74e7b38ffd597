"""Simulated τ: the real tree grower on held-out features, with the written text as the target's choices.

The target does not run. Where it wrote greedily, the tokens are its choices. Where it sampled, noise is drawn from its
distribution given those choices (Oberst and Sontag 2019, arXiv 1905.05824), so that drafting with shared noise can be
tried too. Only the written path of a tree counts.
"""

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.heads.base import DraftHead
from jakiro.methods import METHODS
from jakiro.trace import pooled_tau
from jakiro.training.replay import replay


class HindsightNoise:
    """Gumbel noise over the draft vocabulary under which the target chooses the tokens that are written.

    Stands in for `KeyedNoise`; position t is the index of the token being chosen.

    Args:
        head: whose draft vocabulary is meant.
        ids: (length,) the written tokens.
        features: (length, hidden), the target's last hidden states.
        output_weight: (vocab_size, hidden), the target's.
    """

    def __init__(self, head: DraftHead, ids: Tensor, features: Tensor, output_weight: Tensor, seed: int) -> None:
        self.draft_ids, self.ids, self.features, self.output_weight = head.draft_token_ids, ids, features, output_weight
        self.seed = seed

    def over(self, token_ids: Tensor) -> "HindsightNoise":
        """Rows over the draft vocabulary, which is the only one that is asked for."""
        return self

    def rows(self, first: int, count: int) -> Tensor:
        """(count, draft vocabulary); positions after the text get unconditioned noise."""
        return torch.stack([self._row(position) for position in range(first, first + count)])

    def _row(self, position: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + position)
        free = -torch.empty(len(self.output_weight)).exponential_(generator=generator).log_().to(self.output_weight)
        if position >= len(self.ids):
            return free[self.draft_ids]
        log_probs = (self.output_weight @ self.features[position - 1]).log_softmax(-1)
        # The largest value is a standard Gumbel, the others are Gumbels cut off below it.
        token = self.ids[position]
        top = free[token].clone()
        values = -torch.logaddexp(-(log_probs + free), -top)
        values[token] = top
        return (values - log_probs)[self.draft_ids]


def simulated_tau(
    head: DraftHead,
    texts: list[tuple[Tensor, Tensor, int]],
    output_weight: Tensor,
    greedy: bool,
    tree: TreeConfig,
    seed: int = 0,
) -> float:
    """τ over texts, pooled: draft tokens accepted in a step plus the target's own token.

    Args:
        texts: (ids, features as the head reads them, index of the first answer token), each written greedily or
            sampled at temperature 1.
    """
    drafter, steps = METHODS.drafter_of(head), []
    sampling = SamplingParams(temperature=0.0 if greedy else 1.0, seed=seed)
    for ids, features, start in texts:
        last = features[:, : head.config.hidden_size]
        noise = None if greedy else HindsightNoise(head, ids, last, output_weight, seed)
        steps += replay(drafter, ids, features, start, len(ids) - 1, sampling, tree, noise)
    return pooled_tau(steps) or 1.0
