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
            f"The draft head's config.json has no whole numbers for {', '.join(missing)}; use the config.json that was "
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
    own_tensors = _without_what_the_target_has(config, tensors)
    if not is_dense:
        return own_tensors
    renamed = {
        re.sub(r"^(layers\.\d+\.)mlp\.", r"\1mlp_moe.experts.0.", name): tensor for name, tensor in own_tensors.items()
    }
    router = next(iter(own_tensors.values())).new_zeros((1, config.hidden_size))
    return renamed | {f"layers.{number}.mlp_moe.gate.weight": router for number in range(config.num_layers)}


def _refuse_what_is_not_supported(values: dict, tensors: dict[str, Tensor], num_layers: int) -> None:
    for name, kind in _TYPES.items():
        if values.get(name) is not None and (not isinstance(values[name], kind) or isinstance(values[name], bool)):
            raise ValueError(f"The draft head's config has {name} = {values[name]!r}; use the config of these weights.")
    num_experts = values.get("num_local_experts") or 2
    if num_experts > 2 or any(".mlp_moe.experts.2." in name for name in tensors):
        raise ValueError(
            f"The draft head has {max(num_experts, 3)} experts, Jakiro runs 1 or 2 (the official code "
            "silently uses the first two); use a head with two experts."
        )
    for name in ("qkv_bias", "attention_bias", "mlp_bias"):
        if values.get(name):
            raise ValueError(
                f"The draft head's config requires {name}, which Jakiro does not support; use a head without it."
            )
    num_stored = len({name.split(".")[1] for name in tensors if name.startswith("layers.")})
    layers = max(values.get("num_hidden_layers") or 1, num_stored)
    if layers != num_layers:
        raise ValueError(
            f"The draft head has {layers} decoder layers, Jakiro runs {num_layers}; use a head with {num_layers}."
        )
    refuse_activation(values.get("hidden_act", "silu"), "draft")
    if not isinstance(values.get("bias", True), bool):
        raise ValueError(f"The draft head's config has bias = {values['bias']!r}; expected true or false.")


def _without_what_the_target_has(config: LayerConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Drop a copy of the target's embedding and stored rotary frequencies after checking them."""
    own_tensors = {}
    for name, tensor in tensors.items():
        if name == "embed_tokens.weight":
            expected = (config.vocab_size, config.hidden_size)
            if tuple(tensor.shape) != expected:
                raise ValueError(
                    f"The draft head's copy of the target's embedding has shape {tuple(tensor.shape)}, its config "
                    f"implies {expected}; use the config that belongs to these weights."
                )
        elif name.endswith(_ROTARY_BUFFERS):
            _check_frequencies(config, name, tensor)
        else:
            own_tensors[name] = tensor
    return own_tensors


def _check_frequencies(config: LayerConfig, name: str, stored: Tensor) -> None:
    from jakiro.heads.rotary import rotary_embedding

    expected = rotary_embedding(config).inv_freq
    if stored.shape != expected.shape or not stored.float().allclose(expected, rtol=1e-2):
        # The last frequency is base^(−(d − 2) / d)
        base = float(stored[-1].double()) ** (-config.head_dim / (config.head_dim - 2))
        raise ValueError(
            f"The draft head's {name} was made for RoPE base {base:,.0f}, its config implies "
            f"{config.rope_parameters['rope_theta']:,.0f}; correct rope_theta in its config.json."
        )


def name_unread(values: dict, read: Collection[str] = ()) -> None:
    """Log a warning with the fields of a published config.json that are ignored.

    Args:
        read: Further fields that this kind reads.
    """
    unread = {name: value for name, value in values.items() if value and name not in {*_READ, *_IDLE, *read}}
    if unread:
        listed = ", ".join(f"{name} = {value!r}" for name, value in sorted(unread.items()))
        log.warning(
            "These fields of the draft head's config.json are ignored: %s. If one of them changes the results of the "
            "head, fewer candidates are accepted; the text is still that of the target.",
            listed,
        )


def refuse_other_values(values: dict, only: Mapping[str, object], kind: str) -> None:
    """Raise ValueError if a field of a published config.json differs from its only supported value."""
    for name, value in only.items():
        if values.get(name) not in (None, value):
            raise ValueError(
                f"The {kind} head's config.json has {name} = {values[name]!r}, Jakiro supports only {value!r}; use "
                "another head."
            )


def refuse_windows(values: dict) -> None:
    """Raise ValueError if a published config.json has layers with a sliding window."""
    if values.get("use_sliding_window") or "sliding_attention" in (values.get("layer_types") or ()):
        raise ValueError(
            "The draft head has layers with a sliding window; use a head with full attention in every layer."
        )


def refuse_activation(activation: str, kind: str) -> None:
    """Raise ValueError if the activation of the MLPs is not SiLU."""
    if activation not in ("silu", "swish"):
        raise ValueError(f"The {kind} head has the activation {activation}; Jakiro supports only silu.")


def layers_of_family(values: dict, kind: str) -> tuple[dict, object]:
    """Return the fields of a `DecoderConfig` and transformers' config of the layers of a model family.

    Raises:
        ValueError: the family or a setting of its layers is not supported.
    """
    from transformers import AutoConfig

    values = dict(values)
    family = values.pop("model_type", "qwen3")
    if family not in _FAMILIES:
        raise ValueError(
            f"The {kind} head has layers of {family}; Jakiro supports {' and '.join(_FAMILIES)}. Choose a head with "
            "such layers."
        )
    layer = AutoConfig.for_model(family, **values)
    if getattr(layer, "attention_bias", False):
        raise ValueError(
            f"The {kind} head requires attention_bias, which Jakiro does not support; use a head without it."
        )
    refuse_activation(layer.hidden_act, kind)
    return decoder_fields(layer.to_dict()) | {"num_layers": layer.num_hidden_layers}, layer


def draft_vocabulary(tensors: dict[str, Tensor], vocab_size: int, kind: str) -> tuple[int | None, bool]:
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
        num_named = "none" if mapping is None else mapping.shape[0]
        raise ValueError(
            f"The {kind} head scores {drafted} of {vocab_size} tokens, but its d2t has {num_named}; the file is "
            "incomplete; download it again."
        )
    tensors["draft_token_ids"], order = (torch.arange(drafted) + mapping.long()).sort()
    if output is not None:
        tensors["lm_head.weight"] = output[order]
    return drafted, output is not None
