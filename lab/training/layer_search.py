"""Search for layers of a target that can be left out: greedily, one layer at a time.

The search uses text: it compares the distributions of the remaining layers with those of the whole target.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Subset:
    """Agreement of some layers with the whole target.

    Attributes:
        layers: ascending layer numbers, from 0.
        agreement: share of positions with the same most likely token.
        total_variation: mean distance of the two distributions.
    """

    layers: tuple[int, ...]
    agreement: float
    total_variation: float


class LayerStack:
    """The layers of a stock model over some texts of equal length.

    Args:
        model: a model with Llama's shape.
        token_ids: (texts, length) int64.
        skipped: number of first positions of each text that are not compared.
        rows: number of output rows to compare, the first ones.
        half: compute the layers in bfloat16.
    """

    def __init__(self, model: nn.Module, token_ids: Tensor, skipped: int, rows: int, half: bool) -> None:
        base = model.base_model
        self.layers, self.norm, self.half = base.layers, base.norm, half
        self.output = model.get_output_embeddings().weight[:rows]
        self.first = base.embed_tokens(token_ids)
        positions = torch.arange(token_ids.shape[1])[None]
        self.angles = base.rotary_emb(self.first, positions)
        self.skipped = skipped
        self.wanted = self.log_probs(self.run(self.first, range(len(self.layers))))
        self.choices = self.wanted.argmax(-1)

    def run(self, hidden: Tensor, numbers: Sequence[int]) -> Tensor:
        """Return (texts, length, hidden) after these layers."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            for number in numbers:
                hidden = self.layers[number](hidden, position_embeddings=self.angles)
        return hidden.float()

    def compared(self, hidden: Tensor, layers: Sequence[int]) -> Subset:
        """Return the agreement of the last remaining layer's output."""
        log_probs = self.log_probs(hidden)
        distance = (log_probs.exp() - self.wanted.exp()).abs().sum(-1).mean() / 2
        agreement = (log_probs.argmax(-1) == self.choices).float().mean()
        return Subset(tuple(layers), float(agreement), float(distance))

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Return (positions, rows) log probabilities of the draft vocabulary from the last remaining layer's output."""
        rows = self.norm(hidden[:, self.skipped :]).flatten(0, 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            logits = rows @ self.output.T
        return logits.float().log_softmax(-1)


@torch.inference_mode()
def leave_out(stack: LayerStack, fewest: int) -> Iterator[Subset]:
    """Yield subsets with one layer less each, down to `fewest`; the first and the last layer stay.

    The layers before the tried layer are computed once per size.
    """
    layers = list(range(len(stack.layers)))
    while len(layers) > fewest:
        hidden, best = stack.first, None
        for place in range(1, len(layers) - 1):
            hidden = stack.run(hidden, layers[place - 1 : place])
            remaining = layers[:place] + layers[place + 1 :]
            subset = stack.compared(stack.run(hidden, remaining[place:]), remaining)
            if best is None or subset.total_variation < best.total_variation:
                best = subset
        layers = list(best.layers)
        yield best


def break_even(draft_ms: float, plain_ms: float, pair_ms: float) -> float:
    """Return the acceptance rate at which drafting one token is as fast as plain decoding.

    Args:
        draft_ms: time of a drafted token.
        plain_ms, pair_ms: time of a target pass over one and two rows.
    """
    return (draft_ms + pair_ms) / plain_ms - 1


def best_speed(agreement: float, draft_ms: float, passes_ms: Sequence[float]) -> tuple[float, int]:
    """Return the best speed of chains against plain decoding, and their length.

    Args:
        agreement: acceptance rate of every token.
        draft_ms: time of a drafted token.
        passes_ms: time of target passes over 1, 2, … rows.
    """
    speeds = []
    for length in range(1, len(passes_ms)):
        tokens = sum(agreement**place for place in range(length + 1))
        speeds.append((tokens * passes_ms[0] / (length * draft_ms + passes_ms[length]), length))
    return max(speeds)
