"""Rules for model families: unsupported configs, attention implementations, output functions.

This module does not contain names of families; `probes.py` tries which attention implementation works.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from jakiro.config import SamplingParams

# Name under which `attention_modes.py` registers its function with transformers
ATTENTION = "jakiro"
# Errors of a model's code that cannot handle a mask, a cache or a wider dtype than its own
TRIAL_ERRORS = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class AttentionImpl:
    """An attention implementation for tree passes.

    Attributes:
        implementation: transformers' name of the attention function.
        mask: "bool", "float" (added to the scores), or "own": the model creates its causal mask, so only chains work.
        exact: Whether attention is order-independent, computed in float64.
    """

    implementation: str
    mask: str
    exact: bool = False


EXACT = AttentionImpl(ATTENTION, "bool", exact=True)
STOCK = AttentionImpl(ATTENTION, "bool")
EAGER = AttentionImpl("eager", "float")
OWN = AttentionImpl("eager", "own")


def num_kv_heads(text) -> int:
    """Return the number of key/value heads of a text config, which families without grouped queries do not specify."""
    return getattr(text, "num_key_value_heads", None) or text.num_attention_heads


def refuse_what_cannot_work(config, model_class: type | None = None) -> None:
    """Check from the config alone that a model has an attention cache that can be rolled back.

    Args:
        config: A transformers config.
        model_class: The model's class; None looks it up by the config.

    Raises:
        ValueError: An encoder-decoder, a recurrent or hybrid model, or layers of a kind that no mask here describes.
    """
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{text.model_type} is an encoder-decoder model; Jakiro needs a decoder-only causal model.")
    if model_class is None:
        # Imported here: transformers' models take seconds to import, and listing methods does not need them
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

        model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
        model_class = model_class[-1] if isinstance(model_class, tuple) else model_class
    layer_types = set(getattr(text, "layer_types", None) or [])
    if "chunked_attention" in layer_types:
        raise ValueError(
            f"{text.model_type} has layers with chunked attention, which Jakiro does not support; choose a model with "
            "full or sliding attention in every layer."
        )
    unknown = layer_types - {"full_attention", "sliding_attention"}
    if unknown or getattr(model_class, "_is_stateful", False):
        kinds = ", ".join(sorted(unknown)) or "recurrent state"
        raise ValueError(
            f"{text.model_type} has layers of the kind {kinds}; their state cannot be rolled back after a rejected "
            "draft. Choose a model with full or sliding attention in every layer."
        )


def readable_positions(config) -> tuple[int, str | None]:
    """Return the number of positions that may be used, and a notice for users if the config has more.

    Rotary factors that change with the length of the text would not match keys that were cached before.
    """
    text = config.get_text_config()
    configured = int(getattr(text, "max_position_embeddings", None) or 2**31)
    parameters = getattr(text, "rope_parameters", None) or {}
    original = parameters.get("original_max_position_embeddings") or getattr(
        text, "original_max_position_embeddings", None
    )
    if parameters.get("rope_type") == "longrope" and original and original < configured:
        return int(original), (
            f"{text.model_type} changes its rotary factors after {original:,} positions, so they would not match keys "
            f"that were cached before; {original:,} of its {configured:,} positions are used."
        )
    return configured, None


def stop_ids(model: nn.Module, tokenizer) -> frozenset[int]:
    """Return the ids that end a completion: end of sequence, turn or message.

    The result is the union of the ids in the generation config, the model's configs and the tokenizer.
    """
    stop: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, model.config.get_text_config(), tokenizer):
        for name in ("eos_token_id", "eot_token_id", "eom_token_id"):
            ids = getattr(source, name, None)
            stop.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(int(token_id) for token_id in stop)


# Fields of `SamplingParams` with the same name in a generation config; the first ones apply only if it samples
_SAMPLED, _ALWAYS = (
    ("temperature", "top_p", "top_k", "min_p"),
    ("repetition_penalty", "no_repeat_ngram_size", "suppress_tokens"),
)
# Other settings that change the choice of a token, with the value that has no effect
_UNSUPPORTED = {
    "encoder_repetition_penalty": 1.0, "bad_words_ids": None, "sequence_bias": None, "begin_suppress_tokens": None,
    "forced_bos_token_id": None, "forced_eos_token_id": None, "min_length": 0, "min_new_tokens": None,
    "exponential_decay_length_penalty": None, "top_h": None, "typical_p": 1.0, "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0, "guidance_scale": None, "penalty_alpha": None, "num_beams": 1,
}  # fmt: skip


def makers_settings(generation_config) -> dict:
    """Return the recommended sampling settings of a generation config by the names of `SamplingParams`.

    Values are JSON types. Values without effect, and values that `SamplingParams` rejects, are left out.
    """
    names = (*_SAMPLED, *_ALWAYS) if getattr(generation_config, "do_sample", False) else _ALWAYS
    settings = {}
    for name in names:
        value = getattr(generation_config, name, None)
        try:
            if value is not None and getattr(SamplingParams(**{name: value}), name) != getattr(SamplingParams(), name):
                settings[name] = value
        except ValueError:
            continue
    return settings


def unapplied(generation_config) -> list[str]:
    """Return the settings of a generation config that decoding here does not apply, each as "name value"."""
    settings = {name: getattr(generation_config, name, None) for name in _UNSUPPORTED}
    return [f"{name} {value}" for name, value in settings.items() if value not in (None, _UNSUPPORTED[name])]


def output_function(model: nn.Module, like: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function from features to logits as the family defines it.

    Families scale and cap logits in their own `forward`. If the output layer alone gives other logits, `forward` is
    run with a replacement of the decoder that returns the features.

    Args:
        model: A causal language model.
        like: A tensor with the device and dtype of features.

    Returns:
        A function from (rows, hidden_size) to (rows, vocab_size).
    """
    layer = model.get_output_embeddings()
    prefix = model.base_model_prefix
    if prefix not in model._modules:
        return layer
    shell = copy.copy(model)
    shell._modules = {**model._modules, prefix: _Features()}
    forward = type(model).forward

    def stock(features: Tensor) -> Tensor:
        """Return the logits of (rows, hidden_size) features by the family's own `forward`."""
        shell._modules[prefix].features = features[None]
        inputs = torch.zeros((1, features.shape[0]), dtype=torch.int64, device=features.device)
        return forward(shell, input_ids=inputs, use_cache=False).logits[0]

    generator = torch.Generator("cpu").manual_seed(0)
    # Features are large so that a cap changes the logits
    probe = 10 * torch.randn((4, model.config.get_text_config().hidden_size), generator=generator, device="cpu").to(
        like
    )
    with torch.inference_mode():
        try:
            expected = stock(probe).float()
        except TRIAL_ERRORS:
            # This `forward` reaches its decoder in another way; the trial passes check the output layer
            return layer
        return layer if torch.allclose(expected, layer(probe).float(), rtol=1e-3, atol=1e-3) else stock


class _Features(nn.Module):
    """A replacement of a decoder that returns the features in its attribute `features`."""

    def forward(self, *args, **kwargs) -> "_FeaturesOutput":
        return _FeaturesOutput(last_hidden_state=self.features)


class _FeaturesOutput(BaseModelOutputWithPast):
    """A decoder's output; every other attribute that a family reads is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def takes_positions(base: nn.Module) -> bool:
    """Return whether a decoder accepts `position_ids`."""
    parameters = inspect.signature(base.forward).parameters
    return "position_ids" in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a bool mask as numbers to add to the scores: 0 where it is True, otherwise the dtype's minimum."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
