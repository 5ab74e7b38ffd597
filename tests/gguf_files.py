"""GGUF files for tests, written with the gguf package in the same way as llama.cpp's converters."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.constants import MODEL_ARCH_NAMES
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.support import byte_tokenizer

_ARCHITECTURES = {"gemma3_text": "gemma3"}
_NORM_PLUS_ONE = ("gemma", "gemma2", "gemma3_text")
_PAIRS = ("llama", "granite")


def random_model(model_type: str, spread: float, **settings) -> nn.Module:
    """Return a tiny transformers model with random parameters, including norms and biases."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 260, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": None,
        "eos_token_id": 256, "pad_token_id": None,
    }  # fmt: skip
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes | settings)).eval()
    for parameter in model.parameters():
        parameter.data += spread * torch.randn_like(parameter)
    return model


def write_gguf(
    path: Path,
    model: nn.Module,
    keys: Mapping[str, object] = {},
    tensors: Mapping[str, object] = {},
    architecture: str | None = None,
    kind: str = "F32",
    parts: int = 1,
) -> Path:
    """Write a model with the byte tokenizer; return the path of the first file.

    Args:
        keys: additional or replaced metadata by key; a leading dot is replaced by the architecture, None removes a key.
        tensors: additional or replaced tensors by name; None removes a tensor.
        architecture: name of the architecture in the file.
        kind: type of the matrices; types that the gguf package cannot write get random blocks.
        parts: number of files.
    """
    config, values = model.config, _keys(model.config)
    architecture = architecture or _ARCHITECTURES.get(config.model_type, config.model_type)
    values |= _tokenizer() | {(f"%{key}" if key.startswith(".") else key): value for key, value in keys.items()}
    arrays = _tensors(model, architecture if architecture in MODEL_ARCH_NAMES.values() else "llama")
    arrays = {name: value for name, value in (arrays | dict(tensors)).items() if value is not None}
    options = {"split_max_tensors": -(-len(arrays) // parts)} if parts > 1 else {}
    writer = gguf.GGUFWriter(path, architecture, **options)
    for key, value in values.items():
        if key == "general.architecture":
            # The writer adds this key itself
            writer.kv_data[0].pop(key)
        if value is not None:
            _add(writer, key.replace("%", architecture, 1), value)
    for name, value in arrays.items():
        number = gguf.GGMLQuantizationType[kind if value.ndim > 1 else "F32"]
        if kind.endswith("_K") and value.ndim > 1:
            stored = random_blocks(kind, *value.shape, scale=0.02)
        else:
            stored = gguf.quants.quantize(np.ascontiguousarray(value), number)
        writer.add_tensor(name, stored, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if parts == 1 else path.with_name(f"{path.stem}-00001-of-{parts:05}{path.suffix}")


def random_blocks(kind: str, outputs: int, inputs: int, scale: float = 1.0) -> np.ndarray:
    """Return random rows of a quantized type, with scales as in a trained model; the seed is fixed.

    Args:
        kind: name of a `GGMLQuantizationType`.
        outputs: number of rows.
        inputs: weights of a row, a multiple of the type's block size.
        scale: size of the weights of K types; size of the block scales of other types.

    Returns:
        (outputs, bytes_per_row) uint8.
    """
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    generator = np.random.default_rng(0)
    blocks = generator.integers(0, 256, (outputs, inputs // numbers, size), dtype=np.uint8)
    offsets = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2)}.get(kind, (0,))
    # Scales of sub-blocks go up to 63 or 127, and numbers are around 16
    divisor = {"Q4_K": 512, "Q5_K": 1024, "Q6_K": 2048}.get(kind, 1)
    for offset in offsets:
        scales = scale * generator.standard_normal((outputs, inputs // numbers, 1)) / divisor
        blocks[..., offset : offset + 2] = scales.astype(np.float16).view(np.uint8)
    return blocks.reshape(outputs, -1)


def _add(writer: gguf.GGUFWriter, key: str, value) -> None:
    kinds = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING", list: "ARRAY"}
    item_type = None
    if isinstance(value, list):
        item_type = gguf.GGUFValueType["INT32" if type(value[0]) is int else kinds[type(value[0])]]
    writer.add_key_value(key, value, gguf.GGUFValueType[kinds[type(value)]], item_type)


def _keys(config) -> dict[str, object]:
    """Return the metadata of a model, with "%" in place of its architecture."""
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    keys = {
        "%.block_count": config.num_hidden_layers,
        "%.context_length": config.max_position_embeddings,
        "%.embedding_length": config.hidden_size,
        "%.feed_forward_length": config.intermediate_size,
        "%.attention.head_count": config.num_attention_heads,
        "%.attention.head_count_kv": config.num_key_value_heads,
        "%.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "%.rope.freq_base": float(rope["rope_theta"]),
        "%.rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        "%.vocab_size": config.vocab_size,
    }
    if head_dim != config.hidden_size // config.num_attention_heads:
        keys |= {"%.attention.key_length": head_dim, "%.attention.value_length": head_dim}
    optional = {
        "sliding_window": "attention.sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "attention_multiplier": "attention.scale",
        "logits_scaling": "logit_scale",
    }
    scaling = {}
    if rope["rope_type"] in ("linear", "yarn"):
        scaling = {"%.rope.scaling.type": rope["rope_type"], "%.rope.scaling.factor": float(rope["factor"])}
    if rope["rope_type"] == "longrope":
        scaling = {"%.rope.scaling.attn_factor": float(rope["attention_factor"])}
    if rope["rope_type"] in ("yarn", "longrope"):
        scaling["%.rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    optional = {f"%.{key}": getattr(config, name) for name, key in optional.items() if getattr(config, name, None)}
    return keys | scaling | optional


def _tokenizer() -> dict[str, object]:
    tokens = byte_tokenizer().convert_ids_to_tokens(range(len(byte_tokenizer())))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*tokens[:255], "th", *tokens[256:]],
        "tokenizer.ggml.token_type": [1] * 256 + [3] * 4,
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": 256,
    }


def _tensors(model: nn.Module, architecture: str) -> dict[str, np.ndarray]:
    config = model.config
    number = next(number for number, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    arrays = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        part, value = name.rpartition(".")[2], tensor.detach().float().cpu()
        if config.model_type in _PAIRS and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            value = value.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        if config.model_type in _NORM_PLUS_ONE and name.endswith("norm.weight"):
            value = value + 1
        arrays[f"{names.get_name(name.removesuffix(f'.{part}'))}.{part}"] = value.numpy()
    return arrays | _rope_factors(config)


def _rope_factors(config) -> dict[str, np.ndarray]:
    """Return the divisors of rotary frequencies as tensors, for Llama 3.1 or for LongRoPE (both lists)."""
    rope = config.rope_parameters
    if rope.get("rope_type") == "longrope":
        lists = {f"rope_factors_{name}.weight": rope[f"{name}_factor"] for name in ("long", "short")}
        return {name: np.array(values, dtype=np.float32) for name, values in lists.items()}
    if rope.get("rope_type") != "llama3":
        return {}
    plain = rope["rope_theta"] ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, None)
    return {"rope_freqs.weight": (plain / scaled).numpy()}
