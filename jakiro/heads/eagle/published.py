"""Conversion of published EAGLE-1 and EAGLE-2 heads: one dense layer, stored as a layer with one expert."""

from torch import Tensor

from jakiro.heads.eagle.config import EagleConfig
from jakiro.heads.official import layer_fields, layer_tensors


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Return whether the tensors have a dense layer and no further MLPs; Gumiho's heads have both."""
    starts = {name.split(".")[0] for name in tensors}
    return any(name.startswith("layers.0.mlp.") for name in tensors) and "mlp" not in starts


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[EagleConfig, dict[str, Tensor]]:
    """Return config and tensors in the format of this package; see `HeadKind.convert`."""
    config = EagleConfig(**layer_fields(values, tensors))
    return config, layer_tensors(config, tensors)
