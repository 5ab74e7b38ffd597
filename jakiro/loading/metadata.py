"""Types and ranges of the values that describe a model: metadata keys of GGUF files, and fields of a config.json.

Both kinds of files are untrusted. A value outside of its range would cause NaN logits, loops of hours or exceptions of
another library, so it is rejected here with its name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jakiro.config import shortened

_LARGEST = 2**31 - 1
_LARGEST_FLOAT = 3.5e38
_PLAIN, _LIST, _EITHER = "plain", "list", "either"
_KIND_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The type and the range of a value.

    Attributes:
        kind: bool, int, float or str; a whole number is a valid float.
        low, high: bounds of numbers, both inclusive. NaN is in no range.
        shape: one value, a list of values, or either.
        above_low: exclude the value `low` itself.
    """

    kind: type
    low: float = -_LARGEST_FLOAT
    high: float = _LARGEST_FLOAT
    shape: str = _PLAIN
    above_low: bool = False

    def contains(self, value: object) -> bool:
        """Return whether a value, or every element of a list, has the type and is in the range."""
        if isinstance(value, list):
            return self.shape != _PLAIN and all(map(self._contains_element, value))
        return self.shape != _LIST and self._contains_element(value)

    def _contains_element(self, value: object) -> bool:
        kinds = (int, float) if self.kind is float else (self.kind,)
        if type(value) not in kinds:
            return False
        if self.kind in (bool, str):
            return True
        return self.low <= value <= self.high and not (self.above_low and value == self.low)

    def __str__(self) -> str:
        text = _KIND_NAMES[self.kind]
        if self.kind in (int, float):
            bounds = [f"{'above' if self.above_low else 'at least'} {self.low:g}"] if self.low > -_LARGEST_FLOAT else []
            bounds += [f"at most {self.high:,}"] if self.high < _LARGEST_FLOAT else []
            text = " ".join([text, " and ".join(bounds) or "that is finite"])
        return {_PLAIN: text, _LIST: f"a list, each of {text}", _EITHER: f"{text}, or a list of such"}[self.shape]


_FLAG, _TEXT = ValueRange(bool), ValueRange(str)
_NUMBER = ValueRange(float)
_POSITIVE = ValueRange(float, 0.0, above_low=True)
_NOT_NEGATIVE = ValueRange(float, 0.0)
_EPSILON = ValueRange(float, 0.0, 1.0)
_COUNT = ValueRange(int, 1, _LARGEST)
_INDEX = ValueRange(int, 0, _LARGEST)
_LAYER_COUNTS = ValueRange(int, 1, _LARGEST, _EITHER)

_TOKEN_IDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom", "unknown", "padding"))
GGUF_KEYS = {
    "general.alignment": ValueRange(int, 1, 2**20),
    "general.architecture": _TEXT,
    "general.type": _TEXT,
    "split.no": _INDEX,
    "split.count": _COUNT,
    "split.tensors.count": _INDEX,
    "tokenizer.chat_template": _TEXT,
    "tokenizer.ggml.model": _TEXT,
    "tokenizer.ggml.pre": _TEXT,
    "tokenizer.ggml.tokens": ValueRange(str, shape=_LIST),
    "tokenizer.ggml.merges": ValueRange(str, shape=_LIST),
    "tokenizer.ggml.token_type": ValueRange(int, 0, _LARGEST, _LIST),
    "tokenizer.ggml.scores": ValueRange(float, -math.inf, math.inf, _LIST),
    "tokenizer.ggml.add_bos_token": _FLAG,
    "tokenizer.ggml.add_eos_token": _FLAG,
    "tokenizer.ggml.add_sep_token": _FLAG,
    "tokenizer.ggml.add_space_prefix": _FLAG,
    "tokenizer.ggml.remove_extra_whitespaces": _FLAG,
    **dict.fromkeys(_TOKEN_IDS, _INDEX),
    "general.sampling.temp": _NOT_NEGATIVE,
    "general.sampling.top_k": ValueRange(int, -1, _LARGEST),
    "general.sampling.top_p": ValueRange(float, 0.0, 1.0),
    "general.sampling.min_p": ValueRange(float, 0.0, 1.0),
    "general.sampling.penalty_repeat": _POSITIVE,
    "general.sampling.penalty_last_n": ValueRange(int, -1, _LARGEST),
}
# The keys of an architecture, without its name
GGUF_ARCHITECTURE_KEYS = {
    "block_count": _COUNT,
    "context_length": _COUNT,
    "embedding_length": _COUNT,
    "vocab_size": _COUNT,
    "feed_forward_length": _LAYER_COUNTS,
    "attention.head_count": _LAYER_COUNTS,
    "attention.head_count_kv": _LAYER_COUNTS,
    "attention.key_length": _LAYER_COUNTS,
    "attention.value_length": _LAYER_COUNTS,
    "attention.layer_norm_rms_epsilon": _EPSILON,
    "attention.sliding_window": ValueRange(int, 0, _LARGEST, _EITHER),
    "attention.scale": _NUMBER,
    "attention.causal": _FLAG,
    "attention.clamp_kqv": _NUMBER,
    "attention.max_alibi_bias": _NUMBER,
    "attn_logit_softcapping": _NOT_NEGATIVE,
    "final_logit_softcapping": _NOT_NEGATIVE,
    "embedding_scale": _NUMBER,
    "residual_scale": _NUMBER,
    "logit_scale": _NUMBER,
    "expert_count": _INDEX,
    "expert_used_count": _INDEX,
    "use_parallel_residual": _FLAG,
    "rope.dimension_count": _COUNT,
    "rope.freq_base": _POSITIVE,
    "rope.freq_base_swa": _POSITIVE,
    "rope.scale_linear": _NOT_NEGATIVE,
    "rope.scaling.type": _TEXT,
    "rope.scaling.factor": _NOT_NEGATIVE,
    "rope.scaling.original_context_length": _COUNT,
    "rope.scaling.attn_factor": _POSITIVE,
    "rope.scaling.yarn_ext_factor": _NUMBER,
    "rope.scaling.yarn_attn_factor": _POSITIVE,
    "rope.scaling.yarn_log_multiplier": _NUMBER,
    "rope.scaling.yarn_beta_fast": _POSITIVE,
    "rope.scaling.yarn_beta_slow": _POSITIVE,
}
# Lists of some families have one value for each layer
_CONFIG_FIELDS = {
    "hidden_size": _COUNT,
    "num_hidden_layers": _COUNT,
    "vocab_size": _COUNT,
    "max_position_embeddings": ValueRange(int, 1, 2**31),
    "num_attention_heads": _LAYER_COUNTS,
    "num_key_value_heads": _LAYER_COUNTS,
    "head_dim": _LAYER_COUNTS,
    "intermediate_size": _LAYER_COUNTS,
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"), _EPSILON),
    "rope_theta": _POSITIVE,
    **dict.fromkeys(("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"), _NUMBER),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"), _NOT_NEGATIVE),
}
_ROPE_FIELDS = {
    **dict.fromkeys(
        ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"), _POSITIVE
    ),
    **dict.fromkeys(("attention_factor", "mscale", "mscale_all_dim"), _NUMBER),
    "partial_rotary_factor": ValueRange(float, 0.0, 1.0),
    "original_max_position_embeddings": _COUNT,
    "short_factor": ValueRange(float, 0.0, shape=_LIST, above_low=True),
    "long_factor": ValueRange(float, 0.0, shape=_LIST, above_low=True),
}


def check_gguf_metadata(metadata: Mapping[str, object], path: object) -> None:
    """Check the type and the range of every known key of a GGUF file.

    Raises:
        ValueError: a value is invalid; the message names the key.
    """
    architecture = metadata.get("general.architecture")
    prefix = f"{architecture}."
    num_tokens = len(metadata.get("tokenizer.ggml.tokens", ()) or ())
    for key, value in metadata.items():
        known = GGUF_KEYS.get(key)
        if known is None and key.startswith(prefix):
            known = GGUF_ARCHITECTURE_KEYS.get(key.removeprefix(prefix))
        if known is not None and not known.contains(value):
            raise ValueError(
                f"{path} cannot be read: metadata key {key} must be {known}; got {shortened(value)}. "
                "Convert or download the file again."
            )
        if key in _TOKEN_IDS and num_tokens and value >= num_tokens:
            raise ValueError(
                f"{path} cannot be read: metadata key {key} must be less than the number of tokens {num_tokens:,}; "
                f"got {value:,}."
            )


def check_config_values(config, source: str) -> None:
    """Check the numbers of a transformers config, of GGUF files and of folders alike.

    Raises:
        ValueError: a value has the wrong type or is outside of its range; the message names the field.
    """
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    # Gemma has one set of rotary settings for each kind of layer
    rope_settings = [value for value in rope.values() if isinstance(value, dict)] or [rope]
    tables = [(_CONFIG_FIELDS, vars(text)), *((_ROPE_FIELDS, settings) for settings in rope_settings)]
    for table, values in tables:
        for name, known in table.items():
            value = values.get(name)
            if value is not None and not known.contains(value):
                raise ValueError(
                    f"The target model {source} could not be loaded: {name} in its config must be {known}; got "
                    f"{shortened(value)}. Correct the config, or download the model again."
                )
