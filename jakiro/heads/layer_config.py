"""Configs of heads that have decoder layers."""

from dataclasses import dataclass, field
from typing import ClassVar

from jakiro.config import is_number
from jakiro.heads.config import DraftConfig, count, differences, need, rope_of
from jakiro.models.families import num_kv_heads


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(DraftConfig):
    """Config of a head with decoder layers of any form.

    Attributes:
        num_attention_heads: Query heads of a layer.
        num_key_value_heads: Key/value heads of a layer.
        head_dim: Width of a head; None becomes hidden_size / num_attention_heads.
        expert_intermediate_size: Inner width of an expert, or of the MLP of a layer without experts.
        rms_norm_eps: Epsilon of all norms.
        rope_parameters: Rotary settings in the form of transformers.
        num_layers: Number of layers; a field of the kinds of heads with several.

    Raises:
        ValueError: a field is invalid, or the numbers of heads do not divide each other or the hidden size.
    """

    num_attention_heads: int = count()
    num_key_value_heads: int = count()
    head_dim: int | None = count(None)
    expert_intermediate_size: int = count()
    rms_norm_eps: float = 1e-6
    rope_parameters: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    num_layers: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        need(is_number(self.rms_norm_eps) and self.rms_norm_eps >= 0, "rms_norm_eps must be a number, not negative")
        need(isinstance(self.rope_parameters, dict), "rope_parameters must be an object")
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        need(heads % kv_heads == 0, f"{heads} query heads are no multiple of {kv_heads} key/value heads")
        if self.head_dim is None:
            sentence = f"hidden_size {self.hidden_size} is no multiple of {heads} heads and head_dim is missing"
            need(self.hidden_size % heads == 0, sentence)
            object.__setattr__(self, "head_dim", self.hidden_size // heads)

    def describe(self) -> str:
        layers = "one dense layer" if self.num_layers == 1 else f"{self.num_layers} dense layers"
        return f"{layers} of inner width {self.expert_intermediate_size}"


@dataclass(frozen=True, kw_only=True)
class LayerConfig(DecoderConfig):
    """Config of a `LayerHead` with layers that read and write the same rows as the target's last layer.

    Attributes:
        fc_bias: Whether the input projection has a bias.
    """

    fc_bias: bool = True

    def misfits(self, target_config) -> list[str]:
        heads = differences(
            ("number of attention heads", self.num_attention_heads, target_config.num_attention_heads),
            ("number of key/value heads", self.num_key_value_heads, num_kv_heads(target_config)),
        )
        return super().misfits(target_config) + heads + _rope_misfits(self.rope_parameters, target_config)


def _rope_misfits(ours: dict, target_config) -> list[str]:
    theirs = getattr(target_config, "rope_parameters", None)
    if not theirs:
        return []
    ours, theirs = rope_of({"rope_parameters": ours}), rope_of({"rope_parameters": theirs})
    # A setting that only one of them has is the default of the other one, except for the factor
    names = sorted(ours.keys() & theirs.keys() | ({"factor"} & (ours.keys() | theirs.keys())))
    different = [name for name in names if ours.get(name) != theirs.get(name)]
    if not different:
        return []
    said = [", ".join(f"{name} {side.get(name, 'none')}" for name in different) for side in (ours, theirs)]
    return [
        f"The draft head has {said[0]}, the target {said[1]}; choose a head trained for this target, or correct the "
        "rotary settings in the head's config.json if they are wrong there."
    ]
