"""Conversion of published EAGLE-3 heads: official files (arXiv 2503.01840) and the format of vLLM's speculators.

Both store a draft vocabulary as `d2t`: draft id i is token i + d2t[i]. The official config.json has the sizes of a head
at the top level; speculators' has them in `transformer_layer_config`, without values that are the family's defaults.
"""

from torch import Tensor

from jakiro.heads.eagle3.config import Eagle3Config
from jakiro.heads.official import (
    decoder_fields,
    draft_vocabulary,
    layers_of_family,
    name_unread,
    refuse_activation,
    refuse_other_values,
    refuse_windows,
)

_LAYERS = "eagle_aux_hidden_state_layer_ids"
_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
# Fields with only one supported value, at the top level of config.json or in "eagle_config"
_ONLY = {
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "parallel_draft_step": 1,
}
_NESTED, _FORMAT = ("eagle_config", "transformer_layer_config"), ("speculators_model_type", "speculators_config")
_READ = {
    *_FLAGS, *_ONLY, *_NESTED, *_FORMAT, _LAYERS, "target_hidden_size", "speculators_version", "has_lm_head",
    "embed_requires_grad",
}  # fmt: skip


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Return whether the tensors are from an official head; files of speculators name their format."""
    return any(name.startswith("midlayer.") for name in tensors)


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[Eagle3Config, dict[str, Tensor]]:
    """Return config and tensors in the format of this package; see `HeadKind.convert`."""
    values = values | (values.get("eagle_config") or {})
    refuse_other_values(values, _ONLY, "EAGLE-3")
    name_unread(values, _READ)
    if "speculators_model_type" in values:
        fields, layer = layers_of_family(values.get("transformer_layer_config") or {}, "EAGLE-3")
        refuse_windows({"layer_types": getattr(layer, "layer_types", None)})
        return _own_form(fields | {"qk_norm": layer.model_type == "qwen3"}, values, tensors)
    fields = decoder_fields(values)
    refuse_windows(values)
    layers = values.get("num_hidden_layers") or 1
    if layers != 1:
        raise ValueError(f"The EAGLE-3 head has {layers} decoder layers, official ones have 1; use another.")
    refuse_activation(values.get("hidden_act", "silu"), "EAGLE-3")
    return _own_form(
        fields, values, {name.replace("midlayer.", "layers.0.", 1): tensor for name, tensor in tensors.items()}
    )


def _own_form(fields: dict, values: dict, tensors: dict[str, Tensor]) -> tuple[Eagle3Config, dict[str, Tensor]]:
    if "fc.weight" not in tensors:
        raise ValueError("The EAGLE-3 head has no fc.weight; the file is incomplete; download it again.")
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("rotary_emb.inv_freq")}
    hidden_size, vocab_size = fields["hidden_size"], fields["vocab_size"]
    target_size = values.get("target_hidden_size") or hidden_size
    states, rest = divmod(tensors["fc.weight"].shape[1], target_size)
    if rest:
        raise ValueError(
            f"The EAGLE-3 head's fc.weight has {tensors['fc.weight'].shape[1]} input columns, which is not a multiple "
            f"of the target's hidden size {target_size}; use the config.json that was published with these weights."
        )
    drafted, own_output = draft_vocabulary(tensors, vocab_size, "EAGLE-3")
    layers = tuple(values.get(_LAYERS) or ())
    if layers and len(layers) != states:
        raise ValueError(
            f"The EAGLE-3 head's config.json names layers {list(layers)} of the target, but its fc.weight has input "
            f"columns for {states} layers; use the config.json that was published with these weights."
        )
    config = Eagle3Config(
        **fields,
        draft_vocab_size=drafted,
        target_hidden_size=target_size,
        num_states=states,
        own_embedding="embed_tokens.weight" in tensors,
        own_output=own_output,
        feature_layers=layers,
        **{name: bool(values.get(name)) for name in _FLAGS},
    )
    return config, tensors
