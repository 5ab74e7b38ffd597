"""Published Gumiho heads: two layers in EAGLE's format, and MLPs as chains of a reader and residual blocks."""

import re

from torch import Tensor

from jakiro.heads.medusa.published import mlp_tensors
from jakiro.heads.official import layer_fields, layer_tensors
from lab.published.gumiho.config import GumihoConfig

# Number of the MLP, position in the chain, rest of the name
_NAME = re.compile(r"mlp\.(?:mlp\.)?(\d+)\.(\d+)\.(.+)")


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Return whether the tensors contain the MLPs of a Gumiho head."""
    return any(_NAME.fullmatch(name) for name in tensors)


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[GumihoConfig, dict[str, Tensor]]:
    """Convert a published head; see `HeadKind.convert`."""
    mlps, count, blocks = mlp_tensors(_NAME, tensors, "Gumiho", _renamed)
    rest = {name: tensor for name, tensor in tensors.items() if not _NAME.fullmatch(name)}
    fields = layer_fields(values, rest, num_layers=2)
    config = GumihoConfig(**fields, num_mlps=count, published_blocks=blocks)
    return config, layer_tensors(config, rest) | mlps


def _renamed(place: int, last: int, rest: str) -> str:
    return f"blocks.{place - 1}.{rest}" if place else f"read.{rest.removeprefix('linear.')}"
