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


_FLAG, _TEXT, _TEXTS = ValueRange(bool), ValueRange(str), ValueRange(str, shape=_LIST)
_NUMBER = ValueRange(float)
_POSITIVE = ValueRange(float, 0.0, above_low=True)
_POSITIVES = ValueRange(float, 0.0, shape=_LIST, above_low=True)
_NOT_NEGATIVE = ValueRange(float, 0.0)
_SHARE = ValueRange(float, 0.0, 1.0)
_COUNT = ValueRange(int, 1, _LARGEST)
_INDEX = ValueRange(int, 0, _LARGEST)
_COUNT_OR_NONE = ValueRange(int, -1, _LARGEST)
# Some families have a list with one value per layer
_LAYER_COUNTS = ValueRange(int, 1, _LARGEST, _EITHER)
_LAYER_INDEXES = ValueRange(int, 0, _LARGEST, _EITHER)

_TOKEN_IDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom", "unknown", "padding"))


def _by_name(prefix: str, names_by_range: Mapping[ValueRange, str]) -> dict[str, ValueRange]:
    """Return the range of each name; the names of a range are separated by blanks."""
    return {f"{prefix}{name}": allowed for allowed, names in names_by_range.items() for name in names.split()}


_TOKENIZER_RANGES = {
    _TEXT: "model pre",
    _TEXTS: "tokens merges",
    ValueRange(int, 0, _LARGEST, _LIST): "token_type",
    ValueRange(float, -math.inf, math.inf, _LIST): "scores",
    _FLAG: "add_bos_token add_eos_token add_sep_token add_space_prefix remove_extra_whitespaces",
}
_SAMPLING_RANGES = {
    _NOT_NEGATIVE: "temp", _SHARE: "top_p min_p", _POSITIVE: "penalty_repeat", _COUNT_OR_NONE: "top_k penalty_last_n",
}  # fmt: skip
GGUF_KEYS = {
    **_by_name("general.", {_TEXT: "architecture type", ValueRange(int, 1, 2**20): "alignment"}),
    **_by_name("split.", {_COUNT: "count", _INDEX: "no tensors.count"}),
    "tokenizer.chat_template": _TEXT,
    **_by_name("tokenizer.ggml.", _TOKENIZER_RANGES),
    **dict.fromkeys(_TOKEN_IDS, _INDEX),
    **_by_name("general.sampling.", _SAMPLING_RANGES),
}
_SIZE_RANGES = {
    _COUNT: "block_count context_length embedding_length vocab_size",
    _INDEX: "expert_count expert_used_count",
    _LAYER_COUNTS: "feed_forward_length",
    _FLAG: "use_parallel_residual",
    _NUMBER: "embedding_scale residual_scale logit_scale",
    _NOT_NEGATIVE: "attn_logit_softcapping final_logit_softcapping",
}
_ATTENTION_RANGES = {
    _LAYER_COUNTS: "head_count head_count_kv key_length value_length",
    _LAYER_INDEXES: "sliding_window",
    _SHARE: "layer_norm_rms_epsilon",
    _FLAG: "causal",
    _NUMBER: "scale clamp_kqv max_alibi_bias",
}
_ROPE_RANGES = {
    _COUNT: "dimension_count scaling.original_context_length",
    _TEXT: "scaling.type",
    _POSITIVE: "freq_base freq_base_swa scaling.attn_factor scaling.yarn_attn_factor scaling.yarn_beta_fast "
    "scaling.yarn_beta_slow",
    _NOT_NEGATIVE: "scale_linear scaling.factor",
    _NUMBER: "scaling.yarn_ext_factor scaling.yarn_log_multiplier",
}
# The keys of an architecture, without its name
GGUF_ARCHITECTURE_KEYS = {
    **_by_name("", _SIZE_RANGES), **_by_name("attention.", _ATTENTION_RANGES), **_by_name("rope.", _ROPE_RANGES),
}  # fmt: skip
_CONFIG_RANGES = {
    _COUNT: "hidden_size num_hidden_layers vocab_size",
    ValueRange(int, 1, 2**31): "max_position_embeddings",
    _LAYER_COUNTS: "num_attention_heads num_key_value_heads head_dim intermediate_size",
    _SHARE: "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps norm_epsilon",
    _POSITIVE: "rope_theta",
    _NUMBER: "embedding_multiplier residual_multiplier attention_multiplier logits_scaling",
    _NOT_NEGATIVE: "attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar",
}
_CONFIG_ROPE_RANGES = {
    _POSITIVE: "rope_theta factor low_freq_factor high_freq_factor beta_fast beta_slow",
    _NUMBER: "attention_factor mscale mscale_all_dim",
    _SHARE: "partial_rotary_factor",
    _COUNT: "original_max_position_embeddings",
    _POSITIVES: "short_factor long_factor",
}
_CONFIG_FIELDS, _ROPE_FIELDS = _by_name("", _CONFIG_RANGES), _by_name("", _CONFIG_ROPE_RANGES)


def check_gguf_metadata(metadata: Mapping[str, object], path: object) -> None:
    """Check the type and the range of every known key of a GGUF file.

    Raises:
        ValueError: a value is invalid; the message names the key.
    """
    prefix = f"{metadata.get('general.architecture')}."
    num_tokens = len(metadata.get("tokenizer.ggml.tokens", ()) or ())
    for key, value in metadata.items():
        allowed = GGUF_KEYS.get(key)
        if allowed is None and key.startswith(prefix):
            allowed = GGUF_ARCHITECTURE_KEYS.get(key.removeprefix(prefix))
        if allowed is not None and not allowed.contains(value):
            raise ValueError(
                f"{path} cannot be read: metadata key {key} must be {allowed}; got {shortened(value)}. "
                "Convert or download the file again."
            )
        if key in _TOKEN_IDS and num_tokens and value >= num_tokens:
            raise ValueError(
                f"{path} cannot be read: metadata key {key} must be less than the number of tokens {num_tokens:,}; "
                f"got {value:,}."
            )


def check_config_values(config, source: str) -> None:
    """Check the numbers of a transformers config, whether it comes from a GGUF file or from a folder.

    Raises:
        ValueError: a value has the wrong type or is outside of its range; the message names the field.
    """
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    # Gemma has one set of rotary settings for each kind of layer
    rope_settings = [value for value in rope.values() if isinstance(value, dict)] or [rope]
    tables = [(_CONFIG_FIELDS, vars(text)), *((_ROPE_FIELDS, settings) for settings in rope_settings)]
    for ranges, values in tables:
        for name, allowed in ranges.items():
            value = values.get(name)
            if value is not None and not allowed.contains(value):
                raise ValueError(
                    f"The target model {source} could not be loaded: {name} in its config must be {allowed}; got "
                    f"{shortened(value)}. Correct the config, or download the model again."
                )
