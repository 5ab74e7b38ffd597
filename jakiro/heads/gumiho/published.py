"""Published Gumiho heads: two layers as in EAGLE's files, and chains of a reader and residual blocks beside them."""

import re

from torch import Tensor

from jakiro.heads.gumiho.config import GumihoConfig
from jakiro.heads.official import layer_fields, layer_tensors, mlp_chains, mlp_linear

# MLP, its place in the chain, and the rest of the name
_NAME = re.compile(r"mlp\.(?:mlp\.)?(\d+)\.(\d+)\.(.+)")


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Whether there are MLPs beside layers."""
    return any(_NAME.fullmatch(name) for name in tensors)


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[GumihoConfig, dict[str, Tensor]]:
    """See `HeadKind.convert`.

    Raises:
        ValueError: an MLP is no chain of a reader and residual blocks, or a layer is not supported.
    """
    chains, blocks = mlp_chains(_NAME, tensors, "Gumiho")
    found = {name: tensor for name, tensor in tensors.items() if not _NAME.fullmatch(name)}
    for number, places in enumerate(chains):
        found |= mlp_linear(places, 0, f"mlps.{number}.read.", "Gumiho", of_block=True)
        for place in range(1, blocks + 1):
            found |= mlp_linear(places, place, f"mlps.{number}.blocks.{place - 1}.", "Gumiho")
        if len(places) != blocks + 1:
            raise ValueError(f"The Gumiho head's MLPs are of different lengths: {len(places)} and {blocks + 1} parts.")
    fields = layer_fields(values, found, num_layers=2)
    config = GumihoConfig(**fields, num_mlps=len(chains), published_blocks=blocks)
    return config, layer_tensors(config, found)
