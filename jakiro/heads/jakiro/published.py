"""Conversion of published Jakiro and Jakiro* heads, recognized by the tensors of their experts."""

from torch import Tensor

from jakiro.heads.jakiro.config import JakiroConfig
from jakiro.heads.official import layer_fields, layer_tensors

_SWIGLU = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
_GELU = (".fc.weight", ".proj.weight")


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Return whether the tensors have experts, most of them of one form."""
    return _count(tensors, _SWIGLU) != _count(tensors, _GELU)


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[JakiroConfig, dict[str, Tensor]]:
    """Return config and tensors in the format of this package; see `HeadKind.convert`."""
    fields = layer_fields(values, tensors)
    if _count(tensors, _SWIGLU) > _count(tensors, _GELU):
        # The official SwiGLU experts are square; intermediate_size in their config is not used
        fields["expert_intermediate_size"] = fields["hidden_size"]
    else:
        fields["fusion"] = "decoupled"
    config = JakiroConfig(**fields)
    return config, layer_tensors(config, tensors, is_dense=config.num_experts == 1)


def _count(tensors: dict[str, Tensor], endings: tuple[str, ...]) -> int:
    return sum(".mlp_moe.experts." in name and name.endswith(endings) for name in tensors)
