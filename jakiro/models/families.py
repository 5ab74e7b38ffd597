"""What a model family asks of the target: refusals by its config, ways of attending, its own output function.

No family is known here by name; which way of attending works is tried out in `probes.py`.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from jakiro.config import SamplingParams

# What transformers looks our way of attending up by, see `attending.py`
ATTENTION = "jakiro"
# What a model's code raises when it cannot take a mask, a cache or wider numbers than its own.
TRIAL_ERRORS = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Attending:
    """One way to run tree passes through a model.

    Attributes:
        implementation: what transformers looks attention up by.
        mask: "bool", "float" (added to the scores), or "own": the model makes its causal mask, so only chains work.
        exact: order-independent, in float64.
    """

    implementation: str
    mask: str
    exact: bool = False


EXACT = Attending(ATTENTION, "bool", exact=True)
STOCK = Attending(ATTENTION, "bool")
EAGER = Attending("eager", "float")
OWN = Attending("eager", "own")


def num_kv_heads(text) -> int:
    """Key/value heads of a text config; families without grouped queries name none."""
    return getattr(text, "num_key_value_heads", None) or text.num_attention_heads


def refuse_what_cannot_work(config, model_class: type | None = None) -> None:
    """Refuses by name what has no attention cache to roll back, from the config alone.

    Args:
        config: a transformers config.
        model_class: the model's class; looked up where it is not given.

    Raises:
        ValueError: an encoder-decoder, a recurrent or hybrid model, or layers of a kind no mask here describes.
    """
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{text.model_type} is an encoder-decoder model; Jakiro needs a decoder-only causal model.")
    if model_class is None:
        # Imported here: transformers' models take seconds, and a list of methods needs none
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

        model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
        model_class = model_class[-1] if isinstance(model_class, tuple) else model_class
    layer_types = set(getattr(text, "layer_types", None) or [])
    if "chunked_attention" in layer_types:
        raise ValueError(
            f"{text.model_type} attends within fixed chunks in some layers, which Jakiro's masks do not describe; "
            "choose a model with full or sliding attention in every layer."
        )
    unknown = layer_types - {"full_attention", "sliding_attention"}
    if unknown or getattr(model_class, "_is_stateful", False):
        what = ", ".join(sorted(unknown)) or "recurrent state"
        raise ValueError(
            f"{text.model_type} has layers of the kind {what}, whose state cannot be rolled back after a refused "
            "draft; choose a model with full or sliding attention in every layer."
        )


def readable_positions(config) -> tuple[int, str | None]:
    """How many positions may be used, and a sentence to show to people if these are fewer than the config says.

    Long-context rotary factors that change with the length of the text would disagree with keys cached before.
    """
    text = config.get_text_config()
    stated = int(getattr(text, "max_position_embeddings", None) or 2**31)
    parameters = getattr(text, "rope_parameters", None) or {}
    original = parameters.get("original_max_position_embeddings") or getattr(
        text, "original_max_position_embeddings", None
    )
    if parameters.get("rope_type") == "longrope" and original and original < stated:
        return int(original), (
            f"{text.model_type} changes its rotary factors after {original:,} positions, which does not agree with "
            f"keys cached before; {original:,} of its {stated:,} positions are used."
        )
    return stated, None


def stop_ids(model: nn.Module, tokenizer) -> frozenset[int]:
    """Every id that ends an answer: of a sequence, a turn or a message, from the generation config, the model's configs
    and the tokenizer.
    """
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, model.config.get_text_config(), tokenizer):
        for name in ("eos_token_id", "eot_token_id", "eom_token_id"):
            ids = getattr(source, name, None)
            found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(int(token_id) for token_id in found)


# Settings of `SamplingParams` that a generation config names alike; the first ones count where it samples
_DRAWN, _ALWAYS = (
    ("temperature", "top_p", "top_k", "min_p"),
    ("repetition_penalty", "no_repeat_ngram_size", "suppress_tokens"),
)
# What else it may change about the choice of a token, and the value that changes nothing
_UNAPPLIED = {
    "encoder_repetition_penalty": 1.0, "bad_words_ids": None, "sequence_bias": None, "begin_suppress_tokens": None,
    "forced_bos_token_id": None, "forced_eos_token_id": None, "min_length": 0, "min_new_tokens": None,
    "exponential_decay_length_penalty": None, "top_h": None, "typical_p": 1.0, "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0, "guidance_scale": None, "penalty_alpha": None, "num_beams": 1,
}  # fmt: skip


def makers_settings(generation_config) -> dict:
    """What a target's makers ask for, by the names of `SamplingParams`, in JSON's types; values of no effect left out.

    A value that those settings refuse counts as not given.
    """
    names = (*_DRAWN, *_ALWAYS) if getattr(generation_config, "do_sample", False) else _ALWAYS
    found = {}
    for name in names:
        value = getattr(generation_config, name, None)
        try:
            if value is not None and getattr(SamplingParams(**{name: value}), name) != getattr(SamplingParams(), name):
                found[name] = value
        except ValueError:
            continue
    return found


def unapplied(generation_config) -> list[str]:
    """What a generation config asks for that decoding here leaves out, each as its name and value."""
    found = {name: getattr(generation_config, name, None) for name in _UNAPPLIED}
    return [f"{name} {value}" for name, value in found.items() if value is not None and value != _UNAPPLIED[name]]


def output_function(model: nn.Module, like: Tensor) -> Callable[[Tensor], Tensor]:
    """Features → logits as the family defines them: scaled, capped, or the output layer alone where that is all.

    Families scale and cap logits in their own `forward`. Where the output layer alone does not give the same, that
    `forward` is run around it, with a stand-in for the decoder that returns the features.

    Args:
        model: a causal language model.
        like: a tensor with the device and dtype of features.
    """
    layer = model.get_output_embeddings()
    prefix = model.base_model_prefix
    if prefix not in model._modules:
        return layer
    shell = copy.copy(model)
    shell._modules = {**model._modules, prefix: _Features()}
    forward = type(model).forward

    def stock(features: Tensor) -> Tensor:
        """(rows, hidden_size) → (rows, vocab_size)."""
        shell._modules[prefix].features = features[None]
        inputs = torch.zeros((1, features.shape[0]), dtype=torch.int64, device=features.device)
        return forward(shell, input_ids=inputs, use_cache=False).logits[0]

    generator = torch.Generator("cpu").manual_seed(0)
    # Large features, so that a cap on the logits shows.
    probe = 10 * torch.randn((4, model.config.get_text_config().hidden_size), generator=generator, device="cpu").to(
        like
    )
    with torch.inference_mode():
        try:
            expected = stock(probe).float()
        except TRIAL_ERRORS:
            # A decoder that is reached in another way; the trial passes tell whether its output layer is all there is.
            return layer
        return layer if torch.allclose(expected, layer(probe).float(), rtol=1e-3, atol=1e-3) else stock


class _Features(nn.Module):
    """Stands in for a decoder: returns the features it was given."""

    def forward(self, *args, **kwargs) -> "_FeaturesOutput":
        return _FeaturesOutput(last_hidden_state=self.features)


class _FeaturesOutput(BaseModelOutputWithPast):
    """A decoder's output whose other parts are None, whatever a family calls them."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def takes_positions(base: nn.Module) -> bool:
    """Whether a decoder accepts `position_ids`."""
    parameters = inspect.signature(base.forward).parameters
    return "position_ids" in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask, True where a row may look, as numbers to add to scores."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
