"""Published Medusa-1 and Gumiho heads in our own form, recognised by their tensors.

Both publish MLPs of residual blocks; Medusa's end in output rows of their own. MLPs of another form are refused with
what they hold.
"""

import re

from torch import Tensor

from jakiro.heads.config import DraftConfig

# MLP, its place in the chain, and the rest of the name
_MEDUSA = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.(.+)")
_GUMIHO = re.compile(r"mlp\.(?:mlp\.)?(\d+)\.(\d+)\.(.+)")
# Nothing in an MLP depends on how long a text is
_ANY_LENGTH = 2**30


def is_medusa(tensors: dict[str, Tensor]) -> bool:
    """Whether all tensors are chains of MLPs by number."""
    return bool(tensors) and all(_MEDUSA.fullmatch(name) for name in tensors)


def is_gumiho(tensors: dict[str, Tensor]) -> bool:
    """Whether there are MLPs beside layers."""
    return any(_GUMIHO.fullmatch(name) for name in tensors)


def from_medusa(tensors: dict[str, Tensor]) -> tuple[DraftConfig, dict[str, Tensor]]:
    """Config and tensors of a Medusa-1 head; its config.json says no sizes, its tensors do.

    Raises:
        ValueError: an MLP is no chain of residual blocks and output rows.
    """
    chains, blocks = _chains(_MEDUSA, tensors, "Medusa")
    found = {}
    for number, places in enumerate(chains):
        for place in range(blocks):
            found |= _linear(places, place, f"mlps.{number}.blocks.{place}.", "Medusa")
        if set(places.get(blocks, {})) != {"weight"} or len(places) != blocks + 1:
            raise ValueError(
                f"The Medusa head's MLP {number} does not end with output rows after {blocks} residual blocks; use the "
                "weights of a Medusa-1 head."
            )
        found[f"mlps.{number}.output.weight"] = places[blocks]["weight"]
    vocab_size, hidden_size = found["mlps.0.output.weight"].shape
    config = DraftConfig(
        hidden_size=hidden_size, num_attention_heads=1, num_key_value_heads=1, vocab_size=vocab_size,
        expert_intermediate_size=hidden_size, network="mlps", num_layers=0, num_parallel=len(chains), num_experts=1,
        published_blocks=blocks, max_position_embeddings=_ANY_LENGTH,
    )  # fmt: skip
    return config, found


def from_gumiho(tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
    """Fields of the config that a Gumiho head's MLPs mean, and its tensors with the MLPs renamed; layers stay.

    Raises:
        ValueError: an MLP is no chain of a reader and residual blocks.
    """
    chains, blocks = _chains(_GUMIHO, tensors, "Gumiho")
    found = {name: tensor for name, tensor in tensors.items() if not _GUMIHO.fullmatch(name)}
    for number, places in enumerate(chains):
        found |= _linear(places, 0, f"mlps.{number}.read.", "Gumiho", of_block=True)
        for place in range(1, blocks + 1):
            found |= _linear(places, place, f"mlps.{number}.blocks.{place - 1}.", "Gumiho")
        if len(places) != blocks + 1:
            raise ValueError(f"The Gumiho head's MLPs are of different lengths: {len(places)} and {blocks + 1} parts.")
    return {"network": "staged", "num_parallel": len(chains), "published_blocks": blocks}, found


def _chains(
    pattern: re.Pattern, tensors: dict[str, Tensor], what: str
) -> tuple[list[dict[int, dict[str, Tensor]]], int]:
    """For each MLP the tensors of each place of its chain by the rest of their names, and its residual blocks.

    Beside the blocks a chain has one place: Medusa's output rows at its end, Gumiho's reader at its beginning.
    """
    found: dict[int, dict[int, dict[str, Tensor]]] = {}
    for name, tensor in tensors.items():
        if match := pattern.fullmatch(name):
            found.setdefault(int(match[1]), {}).setdefault(int(match[2]), {})[match[3]] = tensor
    if sorted(found) != list(range(len(found))):
        raise ValueError(
            f"The {what} head's MLPs are numbered {sorted(found)}; the file is incomplete; download it again."
        )
    blocks = max(found[0])
    if blocks < 1:
        raise ValueError(f"The {what} head's MLPs have no residual block; Jakiro runs those with one or more.")
    return [found[number] for number in sorted(found)], blocks


def _linear(
    places: dict[int, dict[str, Tensor]], place: int, name: str, what: str, of_block: bool = False
) -> dict[str, Tensor]:
    """The linear layer of one place under its name in our form; `of_block` leaves the block's own name out."""
    held = places.get(place, {})
    if set(held) != {"linear.weight", "linear.bias"}:
        raise ValueError(
            f"The {what} head's MLPs hold {', '.join(sorted(held)) or 'nothing'} at place {place}, Jakiro expects "
            "linear.weight and linear.bias there; it runs the MLPs that the paper's authors publish."
        )
    return {name + (each.removeprefix("linear.") if of_block else each): tensor for each, tensor in held.items()}
