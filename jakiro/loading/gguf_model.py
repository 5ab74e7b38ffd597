"""A GGUF model in transformers' terms: its config, and the tensor of each of transformers' weights.

Every metadata key of the architecture and every tensor must be in a table of this module; otherwise the file is
rejected with its name. The meaning of a key and its default follow llama.cpp's loaders.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from pathlib import Path

import numpy as np

from jakiro import progress
from jakiro.loading.gguf_file import GgufFile, GgufTensor, Value, open_gguf
from jakiro.loading.incompatibilities import first_of, one_sentence

_EPSILON = "attention.layer_norm_rms_epsilon"
_SIZES = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
# Keys that have no effect with these values, and are rejected with others
_NEUTRAL = {
    "attention.causal": True, "attention.clamp_kqv": 0.0, "attention.max_alibi_bias": 0.0, "expert_count": 0,
    "expert_used_count": 0, "pooling_type": 0, "use_parallel_residual": False, "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0, "rope.scaling.yarn_log_multiplier": 0.0,
}  # fmt: skip
# Keys about the origin of a file
_ABOUT = {"rope.scaling.finetuned", "tensor_data_layout"}
_ROPE = {
    "rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
}  # fmt: skip
_HEADS = {"attention.head_count_kv", "attention.key_length", "attention.value_length", "vocab_size"}

# Names of `SamplingParams`
_SAMPLING = {
    "temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}  # fmt: skip
_SAMPLING_NEUTRAL = {"penalty_last_n": -1, "mirostat": 0, "xtc_probability": 0.0}

# Settings for biases, and the prefix of the biases' names
_BIASES = {"attention_bias": "blk.0.attn_", "mlp_bias": "blk.0.ffn_"}
_ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


@dataclass(frozen=True, slots=True)
class _Architecture:
    """A supported architecture of GGUF.

    Attributes:
        model_type: transformers' name.
        keys: additional keys, with transformers' names.
        optional: settings in `_BIASES` that a file may have.
        has_pairs: rows of queries and keys are stored in pairs for the rotary embedding; transformers has halves.
        adds_one: norms are stored with 1 added.
        window_every: every n-th layer has full attention, the others have a window; 0 without windows.
        partial: the rotary embedding may cover a part of a head.
    """

    model_type: str
    keys: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    has_pairs: bool = False
    adds_one: bool = False
    window_every: int = 0
    partial: bool = False


_CAPS = {"final_logit_softcapping": "final_logit_softcapping"}
_SCALES = {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
}
ARCHITECTURES = {
    "llama": _Architecture("llama", optional=("attention_bias", "mlp_bias"), has_pairs=True),
    "qwen2": _Architecture("qwen2"),
    "qwen3": _Architecture("qwen3", optional=("attention_bias",)),
    "phi3": _Architecture("phi3", keys={"attention.sliding_window": "sliding_window"}, partial=True),
    "granite": _Architecture("granite", keys=_SCALES, optional=("attention_bias", "mlp_bias"), has_pairs=True),
    "gemma": _Architecture("gemma", adds_one=True),
    "gemma2": _Architecture(
        "gemma2", keys=_CAPS | {"attn_logit_softcapping": "attn_logit_softcapping"}, adds_one=True,
        window_every=2,
    ),
    "gemma3": _Architecture("gemma3_text", keys=_CAPS, adds_one=True, window_every=6),
}  # fmt: skip
_WINDOWS = {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"}
# Number of layers of the largest models: they scale queries by width / heads, the others by the size of a head
_WIDE_QUERIES = {"gemma2": 46, "gemma3": 62}


@dataclass(frozen=True, slots=True)
class GgufWeight:
    """One of transformers' weights, stored in a file.

    Attributes:
        order: row i of the weight is row `order[i]` of the tensor; None for the same order.
        offset: added to the tensor's numbers.
    """

    tensor: GgufTensor
    order: np.ndarray | None = None
    offset: float = 0.0

    def dequantized(self) -> np.ndarray:
        """Return the weight in float32, in transformers' order; raises the errors of `GgufTensor.dequantized`."""
        values = self.tensor.dequantized()
        if not np.isfinite(values).all():
            raise ValueError(
                f"{self.tensor.path}: tensor {self.tensor.name} has values that are not finite; convert or download "
                "the file again."
            )
        values = values if self.order is None else values[self.order]
        return values + np.float32(self.offset) if self.offset else values


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A model file without unknown keys or tensors.

    Attributes:
        config: arguments of transformers' config of its `model_type`.
        weights: by transformers' names; no `lm_head.weight` if it is tied to the embedding.
    """

    file: GgufFile
    config: dict[str, object]
    weights: dict[str, GgufWeight]


def read_gguf_model(path: Path) -> GgufModel:
    """Read the config of a language model in a GGUF file; its weights are read on request.

    Raises:
        ValueError: the file is corrupted or incomplete, its architecture or a key is not supported, or a tensor is
            missing, unexpected or of another shape.
        OSError: the file cannot be read.
    """
    file = open_gguf(path)
    kind = ARCHITECTURES.get(file.architecture)
    if kind is None:
        raise _error(file, f"its architecture {file.architecture} is not among {', '.join(ARCHITECTURES)}")
    if file.metadata.get("general.type", "model") != "model":
        raise _error(file, f"its type is {file.metadata['general.type']}, not model")
    keys = _keys(file, kind)
    config = _config(file, kind, keys)
    return GgufModel(file, config, _weights(file, kind, config))


def stock_model(gguf_model: GgufModel, dtype):
    """Return transformers' model with the weights of a file, rounded to a torch dtype.

    Raises:
        ValueError: transformers rejects the config, the file was truncated, or blocks are of an unsupported type.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with one_sentence("target model", str(gguf_model.file.path), "GGUF file"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**gguf_model.config), dtype=dtype).eval()
    weights = model.state_dict()
    tied = {"lm_head.weight"} if gguf_model.config["tie_word_embeddings"] else set()
    assert weights.keys() - tied == gguf_model.weights.keys(), "a table here differs from transformers' names"
    for number, (name, weight) in enumerate(gguf_model.weights.items()):
        # The page's listener cancels a conversion by raising an exception
        progress.tell(progress.CONVERT, number / len(gguf_model.weights))
        weights[name].copy_(torch.from_numpy(weight.dequantized()))
    return model


def stop_ids(metadata: Mapping[str, Value]) -> list[int]:
    """Return the ids that end an answer: end of sequence, of a turn, of a message."""
    token_ids = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return list(dict.fromkeys(token_id for token_id in token_ids if token_id is not None))


def _error(file: GgufFile, reason: str) -> ValueError:
    return ValueError(f"{file.path} cannot be read: {reason}.")


def _keys(file: GgufFile, kind: _Architecture) -> dict[str, Value]:
    """Return the keys of the architecture without prefix; a list of equal values for all layers becomes one value."""
    prefix = f"{file.architecture}."
    keys = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    supported = {*_SIZES, *_NEUTRAL, *_ABOUT, *_ROPE, *_HEADS, *kind.keys, _EPSILON}
    supported |= _WINDOWS if kind.window_every else set()
    unknown = [f"{prefix}{key}" for key in sorted(keys.keys() - supported)]
    if unknown:
        raise _error(file, f"it has unsupported metadata keys, {first_of(unknown)}")
    missing = [f"{prefix}{key}" for key in (*_SIZES, _EPSILON) if key not in keys]
    if missing:
        raise _error(file, f"it has no {first_of(missing)}")
    num_layers = keys["block_count"]
    for key, value in keys.items():
        if isinstance(value, list):
            if len(value) != num_layers:
                raise _error(file, f"{prefix}{key} has {len(value)} values for {num_layers:,} layers")
            if key == "attention.sliding_window_pattern":
                continue
            if len(set(value)) != 1:
                raise _error(file, f"{prefix}{key} differs between layers")
            keys[key] = value[0]
        if key in _NEUTRAL and keys[key] != _NEUTRAL[key]:
            raise _error(file, f"{prefix}{key} is {value}, and only {_NEUTRAL[key]} is supported")
    _check_counts(file, keys)
    return keys


def _check_counts(file: GgufFile, keys: Mapping[str, Value]) -> None:
    """Check that no count exceeds what the file's tensors can hold, before anything is allocated or looped over.

    Raises:
        ValueError: a count is too large.
    """
    widest = max((max(tensor.shape) for tensor in file.tensors.values()), default=0)
    limits = dict.fromkeys((*_SIZES, *_HEADS, "rope.dimension_count"), widest) | {"block_count": len(file.tensors)}
    for key, limit in limits.items():
        if key != "context_length" and keys.get(key, 0) > limit:
            raise _error(file, f"{file.architecture}.{key} is {keys[key]:,}, and its tensors allow at most {limit:,}")


def recommended_sampling(metadata: Mapping[str, Value]) -> tuple[dict[str, float], list[str]]:
    """Return the sampling settings of a GGUF file by the names of `SamplingParams`, and the keys that are not applied.

    llama.cpp applies `penalty_repeat` to the last `penalty_last_n` tokens, Jakiro to all tokens; 0 switches it off.
    """
    prefix = "general.sampling."
    values = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    if values.get("penalty_last_n") == 0:
        values.pop("penalty_repeat", None)
    settings = {}
    for key, name in _SAMPLING.items():
        if key in values:
            value = values.pop(key)
            # A float32 such as 0.7 is stored as 0.699999988
            settings[name] = float(f"{value:.6g}") if isinstance(value, float) else max(value, 0)
    ignored = [f"{prefix}{key} {value}" for key, value in values.items() if value != _SAMPLING_NEUTRAL.get(key)]
    return settings, ignored


def _config(file: GgufFile, kind: _Architecture, keys: Mapping[str, Value]) -> dict[str, object]:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise _error(file, "it has no matrix token_embd.weight")
    config = {name: keys[key] for key, name in _SIZES.items()} | {
        name: keys[key] for key, name in kind.keys.items() if key in keys
    }
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = keys.get("attention.key_length", hidden // heads)
    vocab_size = embedding.shape[0]
    config |= {
        "num_key_value_heads": keys.get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": keys[_EPSILON],
        "vocab_size": vocab_size,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "rope_parameters": _rope(file, kind, keys, head_dim),
    }
    for name, value, expected in (
        ("attention.value_length", keys.get("attention.value_length", head_dim), head_dim),
        ("vocab_size", keys.get("vocab_size", vocab_size), vocab_size),
        ("the number of tokens", len(file.metadata.get("tokenizer.ggml.tokens", ())) or vocab_size, vocab_size),
    ):
        if value != expected:
            raise _error(file, f"{name} is {value:,}, but its tensors and other sizes imply {expected:,}")
    if heads % config["num_key_value_heads"] or head_dim % 2:
        raise _error(file, f"{heads} heads of {head_dim} cannot share {config['num_key_value_heads']} keys")
    if config["rope_parameters"]["rope_type"] == "longrope":
        # transformers reads this field, too
        config["original_max_position_embeddings"] = config["rope_parameters"]["original_max_position_embeddings"]
    for setting in kind.optional:
        config[setting] = any(name.startswith(_BIASES[setting]) and name.endswith(".bias") for name in file.tensors)
    if config.get("sliding_window") == 0:
        config["sliding_window"] = None
    if kind.window_every:
        config |= _windows(file, kind, keys, config)
    return config | {
        "model_type": kind.model_type,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": stop_ids(file.metadata) or None,
        "pad_token_id": file.metadata.get("tokenizer.ggml.padding_token_id"),
    }


def _rope(file: GgufFile, kind: _Architecture, keys: Mapping[str, Value], head_dim: int) -> dict[str, object]:
    """Return transformers' `rope_parameters`."""
    rotated = keys.get("rope.dimension_count", head_dim)
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": keys.get("rope.freq_base", 10000.0)}
    if rotated != head_dim:
        if not kind.partial or rotated > head_dim:
            raise _error(file, f"its rotary embedding covers {rotated} of a head's {head_dim} numbers")
        rope["partial_rotary_factor"] = rotated / head_dim
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 0.0)) or 1.0
    scaling, attention = keys.get("rope.scaling.type", "linear"), keys.get("rope.scaling.attn_factor", 1.0)
    original = keys.get("rope.scaling.original_context_length", keys["context_length"])
    factors = [name for name in _ROPE_FACTORS if name in file.tensors]
    if factors and (factor != 1.0 or scaling == "yarn"):
        raise _error(file, f"it scales its rotary embedding twice, by {factors[0]} and by {scaling}")
    if factors == ["rope_freqs.weight"]:
        return rope | _llama3_rope(file, file.tensors["rope_freqs.weight"].dequantized(), rope["rope_theta"], rotated)
    if factors:
        if len(factors) != 2 or "rope_freqs.weight" in factors:
            raise _error(file, f"it has only {first_of(factors)} of its rotary factors")
        long, short = (file.tensors[name].dequantized().tolist() for name in factors)
        return rope | {
            "rope_type": "longrope", "long_factor": long, "short_factor": short, "attention_factor": attention,
            "original_max_position_embeddings": original,
        }  # fmt: skip
    if scaling == "yarn":
        return rope | {
            "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original,
            "attention_factor": attention * (0.1 * log(factor) + 1.0 if factor > 1 else 1.0),
            "beta_fast": keys.get("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": keys.get("rope.scaling.yarn_beta_slow", 1.0),
        }  # fmt: skip
    if scaling not in ("none", "linear") or attention != 1.0:
        raise _error(file, f"its rotary scaling {scaling} with factor {attention} is not supported")
    return rope | ({"rope_type": "linear", "factor": factor} if scaling == "linear" and factor != 1.0 else {})


def _llama3_rope(file: GgufFile, factors: np.ndarray, base: float, rotated: int) -> dict[str, object]:
    """Return the parameters of Llama 3.1's rule, of which a file contains only the resulting factors.

    Raises:
        ValueError: the factors do not follow from this rule with Llama's constants.
    """
    if np.all(factors == 1.0):
        return {}
    low, high, original, largest = 1.0, 4.0, 8192, float(factors.max())
    turns = original / (2 * np.pi) * base ** (-np.arange(0, rotated, 2) / rotated)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    if factors.shape != turns.shape or not np.allclose(factors, 1 / ((1 - smooth) / largest + smooth), rtol=1e-4):
        raise _error(file, "the factors in rope_freqs.weight follow another rule than Llama 3.1's")
    return {
        "rope_type": "llama3", "factor": largest, "low_freq_factor": low, "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }  # fmt: skip


def _windows(
    file: GgufFile, kind: _Architecture, keys: Mapping[str, Value], config: Mapping[str, object]
) -> dict[str, object]:
    """Return the settings of a Gemma's layers, some of which have an attention window."""
    num_layers, num_heads = config["num_hidden_layers"], config["num_attention_heads"]
    window = keys.get("attention.sliding_window", 4096 if file.architecture == "gemma2" else 0)
    pattern = keys.get("attention.sliding_window_pattern", kind.window_every)
    if isinstance(pattern, list):
        has_window = [bool(value) for value in pattern]
    else:
        has_window = [pattern == 0 or index % pattern < pattern - 1 for index in range(num_layers)]
    is_wide = num_layers == _WIDE_QUERIES[file.architecture]
    settings = {
        "layer_types": ["sliding_attention" if value and window else "full_attention" for value in has_window],
        "sliding_window": window or None,
        "query_pre_attn_scalar": config["hidden_size"] // num_heads if is_wide else config["head_dim"],
    }
    rope = config["rope_parameters"]
    if file.architecture == "gemma3":
        theta = keys.get("rope.freq_base_swa", 10000.0)
        settings["rope_parameters"] = {
            "full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": theta}
        }  # fmt: skip
    elif keys.get("rope.freq_base_swa", rope["rope_theta"]) != rope["rope_theta"]:
        raise _error(file, "layers with a window have another rotary embedding, which is not supported")
    return settings | {name: None for name in kind.keys.values() if not config.get(name)}


def _weights(file: GgufFile, kind: _Architecture, config: Mapping[str, object]) -> dict[str, GgufWeight]:
    """Return the weights by transformers' names, after a check that no tensor is missing or unexpected."""
    expected = _expected_tensors(file, config)
    for problem, names in (
        ("has no", expected.keys() - file.tensors.keys()),
        ("has the unexpected tensors", file.tensors.keys() - expected.keys() - set(_ROPE_FACTORS)),
    ):
        if names:
            raise _error(file, f"it {problem} {first_of(sorted(names, key=_by_layer))}")
    weights, head = {}, config["head_dim"]
    for name, (weight_name, shape) in expected.items():
        tensor = file.tensors[name]
        if tensor.shape != shape:
            raise _error(file, f"{name} has shape {tensor.shape}, but its sizes imply {shape}")
        part = name.rpartition(".")[0].rpartition(".")[2]
        order = _halves(shape[0] // head, head) if kind.has_pairs and part in ("attn_q", "attn_k") else None
        offset = -1.0 if kind.adds_one and weight_name.endswith("norm.weight") else 0.0
        weights[weight_name] = GgufWeight(tensor, order, offset)
    return weights


def _expected_tensors(file: GgufFile, config: Mapping[str, object]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the name in transformers and the shape of every expected tensor, by the name in the file.

    They are the weights of transformers' model, by the names that the package gguf maps them to. All layers have the
    tensors of the first one.
    """
    import gguf
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    one_layer = {"num_hidden_layers": 1} | (
        {"layer_types": config["layer_types"][:1]} if "layer_types" in config else {}
    )
    with torch.device("meta"), no_init_weights(), one_sentence("target model", str(file.path), "GGUF file"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config | one_layer))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[file.architecture.upper()], 1)
    of_first_layer = {}
    for weight_name, tensor in model.state_dict().items():
        part, _, suffix = weight_name.rpartition(".")
        if part != "lm_head" or not config["tie_word_embeddings"]:
            of_first_layer[f"{names.get_name(part) or 'output'}.{suffix}"] = weight_name, tuple(tensor.shape)
    layers = [f".{index}." for index in range(config["num_hidden_layers"])]
    return {
        name.replace(".0.", layer, 1): (weight_name.replace(".0.", layer, 1), shape)
        for layer in layers
        for name, (weight_name, shape) in of_first_layer.items()
    }


def _halves(heads: int, head_dim: int) -> np.ndarray:
    """Return the order that turns rows in pairs into halves: a head's even rows first, then its odd ones."""
    return np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)


def _by_layer(name: str) -> tuple:
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in name.split("."))
