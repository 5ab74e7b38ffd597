"""Published Medusa-1 heads: chains of residual blocks that end in output rows of their own."""

import re

from torch import Tensor

from jakiro.heads.medusa.config import MedusaConfig
from jakiro.heads.official import mlp_chains, mlp_linear

# MLP, its place in the chain, and the rest of the name
_NAME = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.(.+)")
# Nothing in an MLP depends on how long a text is
_ANY_LENGTH = 2**30


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Whether all tensors are chains of MLPs by number."""
    return bool(tensors) and all(_NAME.fullmatch(name) for name in tensors)


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[MedusaConfig, dict[str, Tensor]]:
    """Config and tensors of a Medusa-1 head; its config.json says no sizes, its tensors do.

    Raises:
        ValueError: an MLP is no chain of residual blocks and output rows.
    """
    chains, blocks = mlp_chains(_NAME, tensors, "Medusa")
    found = {}
    for number, places in enumerate(chains):
        for place in range(blocks):
            found |= mlp_linear(places, place, f"mlps.{number}.blocks.{place}.", "Medusa")
        if set(places.get(blocks, {})) != {"weight"} or len(places) != blocks + 1:
            raise ValueError(
                f"The Medusa head's MLP {number} does not end with output rows after {blocks} residual blocks; use the "
                "weights of a Medusa-1 head."
            )
        found[f"mlps.{number}.output.weight"] = places[blocks]["weight"]
    vocab_size, hidden_size = found["mlps.0.output.weight"].shape
    config = MedusaConfig(
        hidden_size=hidden_size, vocab_size=vocab_size, num_mlps=len(chains), published_blocks=blocks,
        max_position_embeddings=_ANY_LENGTH,
    )  # fmt: skip
    return config, found
