"""Heads bound to their target, for commands that compare trained heads."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.checkpoint import load_head
from jakiro.loading import registry, weights
from lab import KNOWN


def bound_heads(target: str | None, names: Sequence[str]) -> Iterator[tuple[str, DraftHead, Tensor]]:
    """Yield the name of each head, the head bound to its target, and the target's output rows.

    Args:
        target: None is the target of the first head.
        names: heads for one target: known names, folders or Hub ids.
    """
    pairs = [registry.resolve(target, name) for name in names]
    model, _, _ = weights.load_target(pairs[0].target_name, "cpu", "float32")
    tables = [layer.weight for layer in (model.get_input_embeddings(), model.get_output_embeddings())]
    for name, pair in zip(names, pairs, strict=True):
        yield name, load_head(pair.head_folder(), kinds=KNOWN.kinds).bind(*tables), tables[1]
