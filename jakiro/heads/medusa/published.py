"""Conversion of published Medusa-1 heads: chains of residual blocks that end in their own output rows."""

import re
from collections.abc import Callable

from torch import Tensor

from jakiro.heads.medusa.config import MedusaConfig

# Number of the MLP, position in its chain, and the rest of the name
_NAME = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.(.+)")
# An MLP does not depend on the length of a text
_ANY_LENGTH = 2**30


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Return whether all tensors have names of numbered MLPs."""
    return bool(tensors) and all(_NAME.fullmatch(name) for name in tensors)


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[MedusaConfig, dict[str, Tensor]]:
    """Return config and tensors of a Medusa-1 head; sizes are read from the tensors, because config.json has none.

    Raises:
        ValueError: tensors are missing, or the MLPs do not end in output rows.
    """
    renamed, count, blocks = mlp_tensors(_NAME, tensors, "Medusa", _renamed)
    output = renamed.get("mlps.0.output.weight")
    if output is None or output.dim() != 2:
        raise ValueError("The Medusa head's MLPs do not end in output rows; use the weights of a Medusa-1 head.")
    config = MedusaConfig(
        hidden_size=output.shape[1], vocab_size=output.shape[0], num_mlps=count, published_blocks=blocks,
        max_position_embeddings=_ANY_LENGTH,
    )  # fmt: skip
    return config, renamed


def mlp_tensors(
    pattern: re.Pattern, tensors: dict[str, Tensor], kind: str, renamed: Callable[[int, int, str], str]
) -> tuple[dict[str, Tensor], int, int]:
    """Rename the tensors of published MLPs.

    A chain has one position besides its residual blocks, such as Medusa's output rows at the end.

    Args:
        pattern: Pattern of tensor names with the MLP, the position in its chain, and the rest as groups.
        tensors: Published tensors.
        kind: Name of the kind, for errors.
        renamed: Returns the name within an MLP from a position, the last position and the rest of a name.

    Returns:
        The tensors under the names of this package, the number of MLPs, and the number of residual blocks of each.

    Raises:
        ValueError: tensors are missing.
    """
    places = {name: (int(match[1]), int(match[2]), match[3]) for name in tensors if (match := pattern.fullmatch(name))}
    count, blocks = (1 + max(number for number, *_ in places.values())), max(place for _, place, _ in places.values())
    if count * blocks > len(places):
        raise ValueError(
            f"The {kind} head has {len(places)} tensors for {count} MLPs of {blocks} blocks; the file is incomplete; "
            "download it again."
        )
    result = {
        f"mlps.{number}.{renamed(place, blocks, rest)}": tensors[name] for name, (number, place, rest) in places.items()
    }
    return result, count, blocks


def _renamed(place: int, last: int, rest: str) -> str:
    return f"output.{rest}" if place == last else f"blocks.{place}.{rest}"
