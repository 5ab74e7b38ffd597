"""Published EAGLE-1 and EAGLE-2 heads: one dense layer, which is a layer of one expert here."""

from torch import Tensor

from jakiro.heads.eagle.config import EagleConfig
from jakiro.heads.official import layer_fields, layer_tensors


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Whether there is a dense layer, and no MLP beside it, as Gumiho's heads have."""
    starts = {name.split(".")[0] for name in tensors}
    return any(name.startswith("layers.0.mlp.") for name in tensors) and "mlp" not in starts


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[EagleConfig, dict[str, Tensor]]:
    """See `HeadKind.convert`."""
    config = EagleConfig(**layer_fields(values, tensors))
    return config, layer_tensors(config, tensors)
