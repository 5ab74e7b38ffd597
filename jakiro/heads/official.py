"""Conversion of published heads: functions for all kinds with layers like those in EAGLE's files.

The config.json of a published head does not determine its kind (model_type is "llama" for all of them). The kind is
determined from the tensors, the sizes from the config. Unsupported fields and tensors raise errors that name them: the
official loader uses `strict=False` and only prints mismatches.
"""

import logging
import re
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from jakiro.config import is_count
from jakiro.heads.config import rope_of
from jakiro.heads.layer_config import LayerConfig

_REQUIRED = ("hidden_size", "num_attention_heads", "vocab_size", "intermediate_size")
_TYPES = {
    "num_local_experts": int,
    "num_hidden_layers": int,
    "rms_norm_eps": (int, float),
    "rope_theta": (int, float),
    "rope_scaling": dict,
    "rope_parameters": dict,
}
_FAMILIES = ("llama", "qwen3")
_ROTARY_BUFFERS = ("rotary_emb.inv_freq",)
# Fields of a published config.json that every kind reads, and fields without effect on the results of a head
_READ = {
    *_REQUIRED, *_TYPES, "num_key_value_heads", "head_dim", "max_position_embeddings", "hidden_act", "draft_vocab_size",
    "bias", "qkv_bias", "attention_bias", "mlp_bias", "layer_types", "use_sliding_window",
}  # fmt: skip
_IDLE = {
    "architectures", "model_type", "torch_dtype", "dtype", "transformers_version", "bos_token_id", "eos_token_id",
    "pad_token_id", "use_cache", "initializer_range", "pretraining_tp", "attention_dropout", "tie_word_embeddings",
    "auto_map", "_name_or_path", "name_or_path", "sliding_window", "max_window_layers", "num_experts_per_tok",
}  # fmt: skip
log = logging.getLogger("jakiro")


def layer_fields(values: dict, tensors: dict[str, Tensor], num_layers: int = 1) -> dict:
    """Return the fields of a `LayerConfig` from a published config.json and its tensors.

    Raises:
        ValueError: a field or a tensor is not supported, or a size is missing.
    """
    _refuse_what_is_not_supported(values, tensors, num_layers)
    refuse_windows(values)
    name_unread(values)
    return decoder_fields(values) | {"fc_bias": values.get("bias", True)}


def decoder_fields(values: dict) -> dict:
    """Return the fields of a `DecoderConfig` from the top level of a published config.json.

    Raises:
        ValueError: a size is missing.
    """
    missing = [name for name in _REQUIRED if not is_count(values.get(name), 1)]
    if missing:
        raise ValueError(
            f"The draft head's config.json lacks {', '.join(missing)} as whole numbers; use the config.json that was "
            "published with these weights."
        )
    return {
        "hidden_size": values["hidden_size"],
        "num_attention_heads": values["num_attention_heads"],
        "num_key_value_heads": values.get("num_key_value_heads") or values["num_attention_heads"],
        "head_dim": values.get("head_dim"),
        "vocab_size": values["vocab_size"],
        "expert_intermediate_size": values["intermediate_size"],
        "rms_norm_eps": values.get("rms_norm_eps", 1e-6),
        "rope_parameters": rope_of(values),
        "max_position_embeddings": values.get("max_position_embeddings", 2048),
    }


def layer_tensors(config: LayerConfig, tensors: dict[str, Tensor], is_dense: bool = True) -> dict[str, Tensor]:
    """Return the tensors under the names of `LayerHead`, without copies of the target's tensors.

    Args:
        config: Config of the head.
        tensors: Published tensors.
        is_dense: Whether an MLP without experts becomes the only expert of its layer. The weight of a single expert is
            always 1, so its router row is zero.
    """
    kept = _without_what_the_target_has(config, tensors)
    if not is_dense:
        return kept
    renamed = {re.sub(r"^(layers\.\d+\.)mlp\.", r"\1mlp_moe.experts.0.", name): each for name, each in kept.items()}
    router = next(iter(kept.values())).new_zeros((1, config.hidden_size))
    return renamed | {f"layers.{number}.mlp_moe.gate.weight": router for number in range(config.num_layers)}


def _refuse_what_is_not_supported(values: dict, tensors: dict[str, Tensor], num_layers: int) -> None:
    for name, kind in _TYPES.items():
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
    found = len({name.split(".")[1] for name in tensors if name.startswith("layers.")})
    layers = max(values.get("num_hidden_layers") or 1, found)
    if layers != num_layers:
        raise ValueError(
            f"The draft head has {layers} decoder layers, Jakiro runs {num_layers}; use a head with {num_layers}."
        )
    refuse_activation(values.get("hidden_act", "silu"), "draft")
    if not isinstance(values.get("bias", True), bool):
        raise ValueError(f"The draft head's config says bias = {values['bias']!r}; expected true or false.")


def _without_what_the_target_has(config: LayerConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Drop a copy of the target's embedding and stored rotary frequencies after checking them."""
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


def _check_frequencies(config: LayerConfig, name: str, stored: Tensor) -> None:
    from jakiro.heads.rotary import rotary_embedding

    meant = rotary_embedding(config).inv_freq
    if stored.shape != meant.shape or not stored.float().allclose(meant, rtol=1e-2):
        found = _base(stored, config.head_dim)
        raise ValueError(
            f"The draft head's {name} was made for RoPE base {found:,.0f}, its config implies "
            f"{config.rope_parameters['rope_theta']:,.0f}; correct rope_theta in its config.json."
        )


def _base(frequencies: Tensor, head_dim: int) -> float:
    """Return the base of rotary frequencies, computed from the last one: base^(−(d − 2) / d)."""
    exponent = (head_dim - 2) / head_dim
    return float(frequencies[-1].double()) ** (-1 / exponent)


def name_unread(values: dict, read: Collection[str] = ()) -> None:
    """Log a warning with the fields of a published config.json that are ignored.

    Args:
        read: Further fields that this kind reads.
    """
    unread = {name: value for name, value in values.items() if value and name not in {*_READ, *_IDLE, *read}}
    if unread:
        said = ", ".join(f"{name} = {value!r}" for name, value in sorted(unread.items()))
        log.warning(
            "Nothing here reads these fields of the draft head's config.json: %s. If one of them changes what the head "
            "computes, fewer candidates are accepted; the text stays the target's own.",
            said,
        )


def refuse_other_values(values: dict, only: Mapping[str, object], what: str) -> None:
    """Raise ValueError if a field of a published config.json differs from its only supported value."""
    for name, value in only.items():
        if values.get(name) not in (None, value):
            raise ValueError(
                f"The {what} head's config.json says {name} = {values[name]!r}, Jakiro runs {value!r} alone; use "
                "another head."
            )


def refuse_windows(values: dict) -> None:
    """Raise ValueError if a published config.json has layers with a sliding window."""
    if values.get("use_sliding_window") or "sliding_attention" in (values.get("layer_types") or ()):
        raise ValueError("The draft head has layers with a sliding window; Jakiro runs those that see all positions.")


def refuse_activation(activation: str, what: str) -> None:
    """Raise ValueError if the activation of the MLPs is not SiLU."""
    if activation not in ("silu", "swish"):
        raise ValueError(f"The {what} head asks for the activation {activation}; Jakiro's layers use silu.")


def layers_of_family(given: dict, what: str) -> tuple[dict, object]:
    """Return the fields of a `DecoderConfig` and transformers' config of the layers of a model family.

    Raises:
        ValueError: the family or a setting of its layers is not supported.
    """
    from transformers import AutoConfig

    given = dict(given)
    family = given.pop("model_type", "qwen3")
    if family not in _FAMILIES:
        raise ValueError(
            f"The {what} head has layers of {family}, Jakiro runs those of {' and '.join(_FAMILIES)}; choose a head "
            "with such layers."
        )
    layer = AutoConfig.for_model(family, **given)
    if getattr(layer, "attention_bias", False):
        raise ValueError(f"The {what} head asks for attention_bias, which Jakiro's heads lack; use a head without it.")
    refuse_activation(layer.hidden_act, what)
    return decoder_fields(layer.to_dict()) | {"num_layers": layer.num_hidden_layers}, layer


def draft_vocabulary(tensors: dict[str, Tensor], vocab_size: int, what: str) -> tuple[int | None, bool]:
    """Convert `d2t` and output rows to the format of this package, in place.

    Returns:
        `DraftConfig.draft_vocab_size`, and whether the head has its own output rows.

    Raises:
        ValueError: the mapping and the output rows do not match.
    """
    mapping, _ = tensors.pop("d2t", None), tensors.pop("t2d", None)
    output = tensors.get("lm_head.weight")
    # A head without output rows scores its draft vocabulary, or all tokens, with the target's rows
    drafted = vocab_size if output is None and mapping is None else len(mapping if output is None else output)
    if drafted == vocab_size:
        return None, output is not None
    if mapping is None or mapping.shape[0] != drafted:
        found = "none" if mapping is None else mapping.shape[0]
        raise ValueError(
            f"The {what} head scores {drafted} of {vocab_size} tokens, and its d2t names {found}; its file is not "
            "whole, download it again."
        )
    tensors["draft_token_ids"], order = (torch.arange(drafted) + mapping.long()).sort()
    if output is not None:
        tensors["lm_head.weight"] = output[order]
    return drafted, output is not None
