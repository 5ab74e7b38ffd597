"""Conversion of published DFlash heads: z-lab's files (arXiv 2602.06036) and the format of vLLM's speculators.

z-lab counts the target's layers from 0 and stores their sizes in a Qwen 3 config, with DFlash's own fields in
`dflash_config`. speculators counts from 1 and trains sliding layers with other masks.
"""

from torch import Tensor

from jakiro.heads.dflash.config import DFlashConfig
from jakiro.heads.official import draft_vocabulary, layers_of_family, name_unread, refuse_other_values

_NESTED, _LAYERS = "dflash_config", "transformer_layer_config"
# Fields with only one supported value
_ONLY = {"input_embedding_scale": 1.0, "output_multiplier": 1.0, "final_logit_softcapping": None}
_OWN = (
    _NESTED, _LAYERS, "block_size", "num_target_layers", "target_layer_ids", "mask_token_id", "is_causal",
    "layer_types", "aux_hidden_state_layer_ids", "sample_from_anchor", "sliding_window_non_causal",
    "target_hidden_size", "speculators_model_type", "speculators_version", "speculators_config",
)  # fmt: skip
# Tensors of the target, or used by training only
_STRAY = ("verifier_norm.weight", "verifier_lm_head.weight")


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Return whether the tensors are from z-lab; files of speculators name their format."""
    return {"fc.weight", "hidden_norm.weight"} <= set(tensors)


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[DFlashConfig, dict[str, Tensor]]:
    """Return config and tensors in the format of this package; see `HeadKind.convert`."""
    values = values | (values.get(_NESTED) or {})
    refuse_other_values(values, _ONLY, "DFlash")
    name_unread(values, (*_OWN, *_ONLY))
    read = _from_speculators if "speculators_model_type" in values else _from_zlab
    fields, layer = read(values)
    for name in ("block_size", "mask_token_id"):
        if values.get(name) is None:
            raise ValueError(f"The DFlash head's config.json has no {name}; use the file published with these weights.")
        fields[name] = values[name]
    tensors = {name: tensor for name, tensor in tensors.items() if name not in _STRAY}
    drafted, own_output = draft_vocabulary(tensors, fields["vocab_size"], "DFlash")
    config = DFlashConfig(
        **fields,
        draft_vocab_size=drafted,
        own_embedding="embed_tokens.weight" in tensors,
        own_output=own_output,
        sample_from_anchor=bool(values.get("sample_from_anchor")),
        sliding_layers=_sliding(layer),
        sliding_window=layer.sliding_window,
    )
    return config, tensors


def _from_zlab(values: dict) -> tuple[dict, object]:
    fields, layer = layers_of_family({**_shape(values), "model_type": "qwen3"}, "DFlash")
    count, num_layers = values.get("num_target_layers"), fields["num_layers"]
    layers = values.get("target_layer_ids")
    if layers is None and count is not None:
        # The published default: spread from the second layer to the third before the last
        steps = [place * (count - 4) / (num_layers - 1) for place in range(num_layers)] if num_layers > 1 else []
        layers = [round(1 + step) for step in steps] or [count // 2]
    # The state after the last layer is the output of the final norm in the published code
    fields["reads_last"] = count is not None and count - 1 in (layers or ())
    fields["feature_layers"] = tuple(layer + 1 for layer in layers or () if layer + 1 != count)
    causal = values.get("is_causal")
    fields["causal_layers"] = _sliding(layer) if causal is None else tuple(range(num_layers)) if causal else ()
    return fields, layer


def _from_speculators(values: dict) -> tuple[dict, object]:
    fields, layer = layers_of_family(_shape(values.get(_LAYERS) or {}), "DFlash")
    fields["feature_layers"] = tuple(values.get("aux_hidden_state_layer_ids") or ())
    fields["causal_layers"] = () if values.get("sliding_window_non_causal") else _sliding(layer)
    return fields | {"window_from_root": True}, layer


def _shape(values: dict) -> dict:
    """Return the fields that transformers reads."""
    return {name: value for name, value in values.items() if name == "layer_types" or name not in (*_OWN, *_ONLY)}


def _sliding(layer) -> tuple[int, ...]:
    types = getattr(layer, "layer_types", None) or ()
    return tuple(number for number, layer_type in enumerate(types) if layer_type == "sliding_attention")
