"""Which layers of a target to leave out: one after another, each time the one that is missed least.

All is measured on text: the whole target's distributions are compared with those of the layers that are left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Subset:
    """What some layers alone give.

    Attributes:
        layers: their numbers from 0, ascending.
        agreement: share of positions where their first guess is the whole target's.
        total_variation: mean distance of the two distributions.
    """

    layers: tuple[int, ...]
    agreement: float
    total_variation: float


class LayerStack:
    """A stock model's layers over some texts of equal length.

    Args:
        model: of Llama's shape. token_ids: (texts, length) int64.
        skipped: first positions of each text that are not compared.
        rows: output rows to compare, the first ones.
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
        """(texts, length, hidden) after these layers."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            for number in numbers:
                hidden = self.layers[number](hidden, position_embeddings=self.angles)
        return hidden.float()

    def compared(self, hidden: Tensor, layers: Sequence[int]) -> Subset:
        """What the last kept layer's output is worth."""
        found = self.log_probs(hidden)
        distance = (found.exp() - self.wanted.exp()).abs().sum(-1).mean() / 2
        agreement = (found.argmax(-1) == self.choices).float().mean()
        return Subset(tuple(layers), float(agreement), float(distance))

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(positions, rows) of the draft vocabulary, from the last kept layer's output."""
        rows = self.norm(hidden[:, self.skipped :]).flatten(0, 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            logits = rows @ self.output.T
        return logits.float().log_softmax(-1)


@torch.inference_mode()
def leave_out(stack: LayerStack, fewest: int) -> Iterator[Subset]:
    """Yields subsets of one layer less each, down to `fewest`; the first and the last layer stay.

    What lies before the layer that is tried is computed once for each size.
    """
    kept = list(range(len(stack.layers)))
    while len(kept) > fewest:
        hidden, best = stack.first, None
        for place in range(1, len(kept) - 1):
            hidden = stack.run(hidden, kept[place - 1 : place])
            left = kept[:place] + kept[place + 1 :]
            found = stack.compared(stack.run(hidden, left[place:]), left)
            if best is None or found.total_variation < best.total_variation:
                best = found
        kept = list(best.layers)
        yield best


def break_even(draft_ms: float, plain_ms: float, pair_ms: float) -> float:
    """The share of accepted tokens from which drafting one token pays.

    A step of `draft_ms` and a pass over two rows, `pair_ms`, then brings as many tokens a second as plain passes do.
    """
    return (draft_ms + pair_ms) / plain_ms - 1


def best_speed(agreement: float, draft_ms: float, passes_ms: Sequence[float]) -> tuple[float, int]:
    """The best speed of chains over plain decoding, and its length; each token is kept with the same chance.

    Args:
        passes_ms: of the target over 1, 2, … rows.
    """
    speeds = []
    for length in range(1, len(passes_ms)):
        tokens = sum(agreement**place for place in range(length + 1))
        speeds.append((tokens * passes_ms[0] / (length * draft_ms + passes_ms[length]), length))
    return max(speeds)
