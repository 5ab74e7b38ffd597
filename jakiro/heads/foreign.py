"""Other people's draft heads by their tensors: Jakiro, Jakiro*, EAGLE-1, 2 and 3, Gumiho, Medusa-1, as published.

A foreign config.json says less than it seems to (its model_type is "llama" for all of them), so the tensors say what
the head is and the config what its sizes are. Whatever is not understood is refused by name: the official loader reads
with `strict=False` and only prints what did not fit.
"""

import re

from torch import Tensor

from jakiro.heads.config import DraftConfig, rope_of
from jakiro.heads.foreign_eagle3 import from_official_eagle3, from_speculators, is_eagle3, speculators_kind
from jakiro.heads.foreign_parallel import from_gumiho, from_medusa, is_gumiho, is_medusa
from jakiro.heads.rotary import rotary_embedding

_REQUIRED = ("hidden_size", "num_attention_heads", "vocab_size", "intermediate_size")
_KINDS = {
    "num_local_experts": int,
    "num_hidden_layers": int,
    "rms_norm_eps": (int, float),
    "rope_theta": (int, float),
    "rope_scaling": dict,
    "rope_parameters": dict,
}
_EAGLE_EXPERT = "layers.0.mlp_moe.experts.0."
_ROTARY_BUFFERS = ("rotary_emb.inv_freq",)
# First tensor names of heads that are known and not supported.
_OTHER_HEADS = {
    "hydra_": "a Hydra head",
    "markov_": "a DSpark head",
}


def from_official(values: dict, tensors: dict[str, Tensor]) -> tuple[DraftConfig, dict[str, Tensor]]:
    """Config and tensors of a foreign checkpoint in our own form.

    Args:
        values: its parsed config.json.
        tensors: its state dict.

    Raises:
        ValueError: a head of an unknown kind, a feature that is not supported, or a config that is incomplete.
    """
    if speculators_kind(values) is not None:
        return from_speculators(values, tensors)
    kind = recognise(tensors)
    if kind == "mlps":
        return from_medusa(tensors)
    if kind == "states":
        _require_sizes(values)
        return from_official_eagle3(values, tensors)
    fields, tensors = from_gumiho(tensors) if kind == "staged" else ({}, tensors)
    _refuse_what_is_not_supported(values, tensors, kind == "staged")
    _require_sizes(values)
    config = DraftConfig(
        hidden_size=values["hidden_size"],
        num_attention_heads=values["num_attention_heads"],
        num_key_value_heads=values.get("num_key_value_heads") or values["num_attention_heads"],
        head_dim=values.get("head_dim"),
        vocab_size=values["vocab_size"],
        # The official SwiGLU experts are square, whatever their config's intermediate_size says.
        expert_intermediate_size=values["hidden_size"] if kind == "summed" else values["intermediate_size"],
        fusion="decoupled" if kind == "decoupled" else "summed",
        num_experts=1 if kind in ("dense", "staged") else 2,
        num_layers=_num_layers(tensors),
        fc_bias=values.get("bias", True),
        rms_norm_eps=values.get("rms_norm_eps", 1e-6),
        rope_parameters=rope_of(values),
        max_position_embeddings=values.get("max_position_embeddings", 2048),
        **fields,
    )
    tensors = _without_what_the_target_has(config, tensors)
    return config, _as_one_expert(config, tensors) if config.num_experts == 1 else tensors


def _require_sizes(values: dict) -> None:
    missing = [name for name in _REQUIRED if not isinstance(values.get(name), int) or isinstance(values[name], bool)]
    if missing:
        raise ValueError(
            f"The draft head's config.json lacks {', '.join(missing)} as whole numbers; use the config.json that was "
            "published with these weights."
        )


def recognise(tensors: dict[str, Tensor]) -> str:
    """What a head is, by the names of its tensors: "summed" (Jakiro), "decoupled" (Jakiro*), "dense" (EAGLE-1 and 2),
    "states" (EAGLE-3), "staged" (Gumiho) or "mlps" (Medusa).

    Raises:
        ValueError: none of them.
    """
    for start, what in _OTHER_HEADS.items():
        if any(name.startswith(start) for name in tensors):
            raise ValueError(
                f"These weights are {what}, which Jakiro does not run; choose a Jakiro, Jakiro*, EAGLE, Gumiho or "
                "Medusa-1 head."
            )
    if is_medusa(tensors):
        return "mlps"
    if is_eagle3(tensors):
        return "states"
    if is_gumiho(tensors):
        return "staged"
    experts = [name for name in tensors if ".mlp_moe.experts." in name]
    swiglu = sum(name.endswith(("gate_proj.weight", "up_proj.weight", "down_proj.weight")) for name in experts)
    gelu = sum(name.endswith((".fc.weight", ".proj.weight")) for name in experts)
    if experts and swiglu != gelu:
        return "summed" if swiglu > gelu else "decoupled"
    if not experts and any(name.startswith("layers.0.mlp.") for name in tensors):
        return "dense"
    shown = ", ".join(sorted(tensors)[:4]) or "none"
    raise ValueError(
        f"These weights are no draft head that Jakiro knows (tensors: {shown}, …); expected a Jakiro, Jakiro*, "
        "EAGLE, Gumiho or Medusa-1 head."
    )


def _num_layers(tensors: dict[str, Tensor]) -> int:
    return len({name.split(".")[1] for name in tensors if name.startswith("layers.")})


def _refuse_what_is_not_supported(values: dict, tensors: dict[str, Tensor], staged: bool) -> None:
    for name, kind in _KINDS.items():
        if values.get(name) is not None and (not isinstance(values[name], kind) or isinstance(values[name], bool)):
            raise ValueError(
                f"The draft head's config says {name} = {values[name]!r}; use the config of these weights."
            )
    num_experts = values.get("num_local_experts") or 2
    if num_experts > 2 or any(".mlp_moe.experts.2." in name for name in tensors):
        raise ValueError(
            f"The draft head has {max(num_experts, 3)} experts, Jakiro runs 1 or 2 (the official code "
            "silently uses the first two); use a head with two experts."
        )
    for name in ("qkv_bias", "attention_bias", "mlp_bias"):
        if values.get(name):
            raise ValueError(
                f"The draft head's config asks for {name}, which Jakiro's heads do not have; use a head without it."
            )
    layers, most = max(values.get("num_hidden_layers") or 1, _num_layers(tensors)), 2 if staged else 1
    if layers != most:
        raise ValueError(f"The draft head has {layers} decoder layers, Jakiro runs {most}; use a head with {most}.")
    if values.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ValueError(
            f"The draft head's config asks for the activation {values['hidden_act']}, Jakiro's experts use silu; use a "
            "head with silu."
        )
    if not isinstance(values.get("bias", True), bool):
        raise ValueError(f"The draft head's config says bias = {values['bias']!r}; expected true or false.")


def _without_what_the_target_has(config: DraftConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Drops a stray copy of the target's embedding and stored rotary frequencies, if they are what they should be."""
    kept = {}
    for name, tensor in tensors.items():
        if name == "embed_tokens.weight":
            expected = (config.vocab_size, config.hidden_size)
            if tuple(tensor.shape) != expected:
                raise ValueError(
                    f"The draft head's copy of the target's embedding has shape {tuple(tensor.shape)}, its config "
                    f"means {expected}; use the config that belongs to these weights."
                )
        elif name.endswith(_ROTARY_BUFFERS):
            _check_frequencies(config, name, tensor)
        else:
            kept[name] = tensor
    return kept


def _check_frequencies(config: DraftConfig, name: str, stored: Tensor) -> None:
    meant = rotary_embedding(config).inv_freq
    if stored.shape != meant.shape or not stored.float().allclose(meant, rtol=1e-2):
        found = _base(stored, config.head_dim)
        raise ValueError(
            f"The draft head's {name} was made for RoPE base {found:,.0f}, its config implies "
            f"{config.rope_parameters['rope_theta']:,.0f}; correct rope_theta in its config.json."
        )


def _base(frequencies: Tensor, head_dim: int) -> float:
    """The base that gives these frequencies, from the last one: base^(−(d − 2) / d)."""
    exponent = (head_dim - 2) / head_dim
    return float(frequencies[-1].double()) ** (-1 / exponent)


def _as_one_expert(config: DraftConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Dense MLPs as the only experts; a router over one expert always says 1, so its row is zero."""
    renamed = {re.sub(r"^(layers\.\d+\.)mlp\.", r"\1mlp_moe.experts.0.", name): each for name, each in tensors.items()}
    router = next(iter(tensors.values())).new_zeros((1, config.hidden_size))
    return renamed | {f"layers.{number}.mlp_moe.gate.weight": router for number in range(config.num_layers)}


def to_eagle(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of a one-expert head under EAGLE's names, without its router."""
    return {
        "layers.0.mlp." + name.removeprefix(_EAGLE_EXPERT) if name.startswith(_EAGLE_EXPERT) else name: tensor
        for name, tensor in tensors.items()
        if name != "layers.0.mlp_moe.gate.weight"
    }
