"""What a GGUF file says of a model, in transformers' terms: its config, and which tensor is which of its weights.

Nothing in a file goes unread: each key of its architecture and each tensor is in a table here, or the file is refused
with its name. llama.cpp's loaders say what a key means and what stands where it is absent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from pathlib import Path

import numpy as np

from jakiro import progress
from jakiro.loading.gguf_file import GgufFile, GgufTensor, Value, open_gguf
from jakiro.loading.incompatibilities import first_of, one_sentence

_SIZES = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
# Keys that change nothing with these values, and are refused with others
_NEUTRAL = {
    "attention.causal": True, "attention.clamp_kqv": 0.0, "attention.max_alibi_bias": 0.0, "expert_count": 0,
    "expert_used_count": 0, "pooling_type": 0, "use_parallel_residual": False, "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0, "rope.scaling.yarn_log_multiplier": 0.0,
}  # fmt: skip
# How a file came about, and not what it computes
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

# Settings that ask for biases, and how the names of those in a file begin
_BIASES = {"attention_bias": "blk.0.attn_", "mlp_bias": "blk.0.ffn_"}
_ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


@dataclass(frozen=True, slots=True)
class _Architecture:
    """One of GGUF's architectures.

    Attributes:
        model_type: transformers' name for it.
        keys: beyond those that all have, transformers' names for them.
        optional: of `_BIASES`, settings for biases that a file may have.
        pairs: queries and keys lie as pairs for the rotary embedding, where transformers has halves of a head.
        one_more: norms are stored with one added.
        window_every: every n-th layer attends to the whole text, the others to a window; 0 without windows.
        partial: the rotary embedding may be for a part of a head.
    """

    model_type: str
    keys: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    pairs: bool = False
    one_more: bool = False
    window_every: int = 0
    partial: bool = False


# By the file's names, transformers' name and the shape
_Meant = dict[str, tuple[str, tuple[int, ...]]]
_CAPS = {"final_logit_softcapping": "final_logit_softcapping"}
_SCALES = {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
}
ARCHITECTURES = {
    "llama": _Architecture("llama", optional=("attention_bias", "mlp_bias"), pairs=True),
    "qwen2": _Architecture("qwen2"),
    "qwen3": _Architecture("qwen3", optional=("attention_bias",)),
    "phi3": _Architecture("phi3", keys={"attention.sliding_window": "sliding_window"}, partial=True),
    "granite": _Architecture("granite", keys=_SCALES, optional=("attention_bias", "mlp_bias"), pairs=True),
    "gemma": _Architecture("gemma", one_more=True),
    "gemma2": _Architecture(
        "gemma2", keys=_CAPS | {"attn_logit_softcapping": "attn_logit_softcapping"}, one_more=True,
        window_every=2,
    ),
    "gemma3": _Architecture("gemma3_text", keys=_CAPS, one_more=True, window_every=6),
}  # fmt: skip
_WINDOWS = {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"}
# Of these the largest model scales queries by its width over its heads, the others by the size of a head
_WIDE_QUERIES = {"gemma2": 46, "gemma3": 62}


@dataclass(frozen=True, slots=True)
class GgufWeight:
    """One of transformers' weights in a file.

    Attributes:
        order: its row i is the file's row `order[i]`; None where the order is the same.
        offset: to add to the file's numbers.
    """

    tensor: GgufTensor
    order: np.ndarray | None = None
    offset: float = 0.0

    def numbers(self) -> np.ndarray:
        """float32, in transformers' order; errors are `GgufTensor.numbers`'."""
        values = self.tensor.numbers()
        if not np.isfinite(values).all():
            raise ValueError(
                f"{self.tensor.path}: tensor {self.tensor.name} has values that are not finite; convert or download "
                "the file again."
            )
        values = values if self.order is None else values[self.order]
        return values + np.float32(self.offset) if self.offset else values


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A model file whose keys and tensors are all accounted for.

    Attributes:
        config: what transformers' config of its `model_type` takes.
        weights: by transformers' names; `lm_head.weight` is absent where it is the embedding.
    """

    file: GgufFile
    config: dict[str, object]
    weights: dict[str, GgufWeight]


def read_gguf_model(path: Path) -> GgufModel:
    """A GGUF file of a language model, of which weights are read when they are asked for.

    Raises:
        ValueError: the file is damaged, incomplete or of an architecture that is not read here; it has a key that
            changes the model and is not known here; or a tensor is missing, unexpected or of another shape.
        OSError: it cannot be read.
    """
    file = open_gguf(path)
    kind = ARCHITECTURES.get(file.architecture)
    if kind is None:
        raise _refusal(file, f"its architecture {file.architecture} is not among {', '.join(ARCHITECTURES)}")
    if file.metadata.get("general.type", "model") != "model":
        raise _refusal(file, f"it holds no model but: {file.metadata['general.type']}")
    keys = _keys(file, kind)
    config = _config(file, kind, keys)
    return GgufModel(file, config, _weights(file, kind, config))


def stock_model(read: GgufModel, dtype):
    """transformers' model with a file's weights, rounded to a torch dtype.

    Raises:
        ValueError: transformers refuses the config, the file was cut meanwhile, or has blocks that cannot be read.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with one_sentence("target model", str(read.file.path), "GGUF file"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**read.config), dtype=dtype).eval()
    weights = model.state_dict()
    tied = {"lm_head.weight"} if read.config["tie_word_embeddings"] else set()
    assert weights.keys() - tied == read.weights.keys(), "a table here differs from transformers' names"
    for number, (name, weight) in enumerate(read.weights.items()):
        # The page cancels a conversion by raising from its listener
        progress.tell(progress.CONVERT, number / len(read.weights))
        weights[name].copy_(torch.from_numpy(weight.numbers()))
    return model


def stop_ids(metadata: Mapping[str, Value]) -> list[int]:
    """The ids that end an answer: end of sequence, of a turn, of a message."""
    found = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return list(dict.fromkeys(token for token in found if token is not None))


def _refusal(file: GgufFile, why: str) -> ValueError:
    return ValueError(f"{file.path} cannot be read: {why}.")


def _keys(file: GgufFile, kind: _Architecture) -> dict[str, Value]:
    """The keys of a file's architecture without their prefix; a list of equal values for each layer is one value."""
    prefix = f"{file.architecture}."
    keys = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    known = {*_SIZES, *_NEUTRAL, *_ABOUT, *_ROPE, *_HEADS, *kind.keys, "attention.layer_norm_rms_epsilon"}
    known |= _WINDOWS if kind.window_every else set()
    unknown = [f"{prefix}{key}" for key in sorted(keys.keys() - known)]
    if unknown:
        raise _refusal(file, f"what {first_of(unknown)} would change is not known here")
    missing = [f"{prefix}{key}" for key in (*_SIZES, "attention.layer_norm_rms_epsilon") if key not in keys]
    if missing:
        raise _refusal(file, f"it lacks {first_of(missing)}")
    num_layers = keys["block_count"]
    for key, value in keys.items():
        if isinstance(value, list):
            if len(value) != num_layers:
                raise _refusal(file, f"{prefix}{key} has {len(value)} values for {num_layers:,} layers")
            if key == "attention.sliding_window_pattern":
                continue
            if len(set(value)) != 1:
                raise _refusal(file, f"{prefix}{key} differs between layers")
            keys[key] = value[0]
        if key in _NEUTRAL and keys[key] != _NEUTRAL[key]:
            raise _refusal(file, f"{prefix}{key} is {value}, and only {_NEUTRAL[key]} is supported")
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
            raise _refusal(file, f"{file.architecture}.{key} is {keys[key]:,}, and its tensors allow at most {limit:,}")


def recommended_sampling(metadata: Mapping[str, Value]) -> tuple[dict[str, float], list[str]]:
    """Return the sampling settings of a GGUF file by the names of `SamplingParams`, and those that are not applied.

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
        raise _refusal(file, "it lacks token_embd.weight")
    config = {name: keys[key] for key, name in _SIZES.items()} | {
        name: keys[key] for key, name in kind.keys.items() if key in keys
    }
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = keys.get("attention.key_length", hidden // heads)
    config |= {
        "num_key_value_heads": keys.get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": keys["attention.layer_norm_rms_epsilon"],
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "rope_parameters": _rope(file, kind, keys, head_dim),
    }
    tokens = file.metadata.get("tokenizer.ggml.tokens", ())
    for what, value, meant in (
        ("attention.value_length", keys.get("attention.value_length", head_dim), head_dim),
        ("vocab_size", keys.get("vocab_size", embedding.shape[0]), embedding.shape[0]),
        ("the number of tokens", len(tokens) or embedding.shape[0], embedding.shape[0]),
    ):
        if value != meant:
            raise _refusal(file, f"{what} is {value:,}, where the rest of it means {meant:,}")
    if heads % config["num_key_value_heads"] or head_dim % 2:
        raise _refusal(file, f"{heads} heads of {head_dim} cannot share {config['num_key_value_heads']} keys")
    if config["rope_parameters"]["rope_type"] == "longrope":
        # transformers looks for it here, too
        config["original_max_position_embeddings"] = config["rope_parameters"]["original_max_position_embeddings"]
    for name in kind.optional:
        config[name] = any(each.startswith(_BIASES[name]) and each.endswith(".bias") for each in file.tensors)
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
    """transformers' `rope_parameters`."""
    rotated = keys.get("rope.dimension_count", head_dim)
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": keys.get("rope.freq_base", 10000.0)}
    if rotated != head_dim:
        if not kind.partial or rotated > head_dim:
            raise _refusal(file, f"its rotary embedding turns {rotated} of a head's {head_dim} numbers")
        rope["partial_rotary_factor"] = rotated / head_dim
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 0.0)) or 1.0
    scaling, attention = keys.get("rope.scaling.type", "linear"), keys.get("rope.scaling.attn_factor", 1.0)
    original = keys.get("rope.scaling.original_context_length", keys["context_length"])
    factors = [name for name in _ROPE_FACTORS if name in file.tensors]
    if factors and (factor != 1.0 or scaling == "yarn"):
        raise _refusal(file, f"it scales its rotary embedding twice, by {factors[0]} and by {scaling}")
    if factors == ["rope_freqs.weight"]:
        return rope | _llama3_rope(file, file.tensors["rope_freqs.weight"].numbers(), rope["rope_theta"], rotated)
    if factors:
        if len(factors) != 2 or "rope_freqs.weight" in factors:
            raise _refusal(file, f"of its rotary embedding's factors it holds {first_of(factors)} alone")
        long, short = (file.tensors[name].numbers().tolist() for name in factors)
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
        raise _refusal(file, f"its rotary embedding is scaled by {scaling} with factor {attention}, which is not read")
    return rope | ({"rope_type": "linear", "factor": factor} if scaling == "linear" and factor != 1.0 else {})


def _llama3_rope(file: GgufFile, factors: np.ndarray, base: float, rotated: int) -> dict[str, object]:
    """The rule of Llama 3.1 that factors come from: its files hold these factors alone.

    Raises:
        ValueError: they come from no such rule with Llama's own constants.
    """
    if np.all(factors == 1.0):
        return {}
    low, high, original, largest = 1.0, 4.0, 8192, float(factors.max())
    turns = original / (2 * np.pi) * base ** (-np.arange(0, rotated, 2) / rotated)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    if factors.shape != turns.shape or not np.allclose(factors, 1 / ((1 - smooth) / largest + smooth), rtol=1e-4):
        raise _refusal(file, "the factors in rope_freqs.weight follow another rule than Llama 3.1's")
    return {
        "rope_type": "llama3", "factor": largest, "low_freq_factor": low, "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }  # fmt: skip


def _windows(
    file: GgufFile, kind: _Architecture, keys: Mapping[str, Value], config: Mapping[str, object]
) -> dict[str, object]:
    """Which layers have a window, and what else differs between a Gemma's layers."""
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    window = keys.get("attention.sliding_window", 4096 if file.architecture == "gemma2" else 0)
    pattern = keys.get("attention.sliding_window_pattern", kind.window_every)
    if isinstance(pattern, list):
        slides = [bool(each) for each in pattern]
    else:
        slides = [pattern == 0 or index % pattern < pattern - 1 for index in range(layers)]
    if len(slides) != layers:
        raise _refusal(file, f"attention.sliding_window_pattern is for {len(slides)} layers of {layers}")
    kinds = ["sliding_attention" if slide and window else "full_attention" for slide in slides]
    wide = layers == _WIDE_QUERIES[file.architecture]
    found = {
        "layer_types": kinds, "sliding_window": window or None,
        "query_pre_attn_scalar": config["hidden_size"] // heads if wide else config["head_dim"],
    }  # fmt: skip
    rope = config["rope_parameters"]
    if file.architecture == "gemma3":
        theta = keys.get("rope.freq_base_swa", 10000.0)
        found["rope_parameters"] = {
            "full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": theta}
        }  # fmt: skip
    elif keys.get("rope.freq_base_swa", rope["rope_theta"]) != rope["rope_theta"]:
        raise _refusal(file, "its windows have a rotary embedding of their own")
    found |= {name: None for name in kind.keys.values() if not config.get(name)}
    return found


def _weights(file: GgufFile, kind: _Architecture, config: Mapping[str, object]) -> dict[str, GgufWeight]:
    """By transformers' names, after everything in the file was accounted for."""
    outside, layer = _tensors(file, config)
    meant = dict(outside)
    for index in range(config["num_hidden_layers"]):
        meant |= {
            name.replace(".0.", f".{index}.", 1): (own.replace(".0.", f".{index}.", 1), shape)
            for name, (own, shape) in layer.items()
        }
    for what, names in (
        ("lacks", meant.keys() - file.tensors.keys()),
        ("also holds", file.tensors.keys() - meant.keys() - set(_ROPE_FACTORS)),
    ):
        if names:
            raise _refusal(file, f"it {what} {first_of(sorted(names, key=_by_layer))}")
    weights, head = {}, config["head_dim"]
    for name, (own, expected) in meant.items():
        tensor = file.tensors[name]
        if tensor.shape != expected:
            raise _refusal(file, f"{name} has shape {tensor.shape}, and its sizes mean {expected}")
        part = name.rpartition(".")[0].rpartition(".")[2]
        order = _halves(expected[0] // head, head) if kind.pairs and part in ("attn_q", "attn_k") else None
        weights[own] = GgufWeight(tensor, order, -1.0 if kind.one_more and own.endswith("norm.weight") else 0.0)
    return weights


def _tensors(file: GgufFile, config: Mapping[str, object]) -> tuple[_Meant, _Meant]:
    """The tensors that such a file holds outside of its layers and in the first one: what transformers' model has, by
    the names that the package gguf gives them.
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
    outside, layer = {}, {}
    for own, tensor in model.state_dict().items():
        part, _, ending = own.rpartition(".")
        if part != "lm_head" or not config["tie_word_embeddings"]:
            found = layer if ".layers." in own else outside
            found[f"{names.get_name(part) or 'output'}.{ending}"] = own, tuple(tensor.shape)
    return outside, layer


def _halves(heads: int, head_dim: int) -> np.ndarray:
    """Which row of pairs is each row of halves: a head's even rows first, then its odd ones."""
    return np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)


def _by_layer(name: str) -> tuple:
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in name.split("."))
