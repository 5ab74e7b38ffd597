"""Published Medusa-1 heads: chains of residual blocks that end in output rows of their own."""

import re

from torch import Tensor

from jakiro.heads.medusa.config import MedusaConfig
from jakiro.heads.official import mlp_tensors

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
        ValueError: tensors are missing, or the MLPs do not end in output rows.
    """
    found, count, blocks = mlp_tensors(_NAME, tensors, "Medusa", _renamed)
    output = found.get("mlps.0.output.weight")
    if output is None or output.dim() != 2:
        raise ValueError("The Medusa head's MLPs do not end in output rows; use the weights of a Medusa-1 head.")
    config = MedusaConfig(
        hidden_size=output.shape[1], vocab_size=output.shape[0], num_mlps=count, published_blocks=blocks,
        max_position_embeddings=_ANY_LENGTH,
    )  # fmt: skip
    return config, found


def _renamed(place: int, last: int, rest: str) -> str:
    return f"output.{rest}" if place == last else f"blocks.{place}.{rest}"
