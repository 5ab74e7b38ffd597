"""Targets in GGUF files: converted once into the same model; unsupported metadata and tensors are named."""

import logging
import re
import struct

import numpy as np
import pytest
import torch

from jakiro import progress
from jakiro.loading import registry, weights
from jakiro.loading.gguf_model import read_gguf_model, stock_model
from jakiro.loading.loader import LoadOptions, load_parts
from jakiro.loading.weights import load_config, load_target
from jakiro.models.families import stop_ids
from tests.gguf_files import random_model, write_gguf
from tests.support import byte_tokenizer, tiny_model

SIZES = {
    "intermediate_size": 96, "num_hidden_layers": 4, "max_position_embeddings": 256, "initializer_range": 0.15,
}  # fmt: skip
WINDOW = {"sliding_window": 8}
LONG = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 128, "attention_factor": 1.1,
    "short_factor": [1.0 + index / 10 for index in range(8)], "long_factor": [2.0 + index for index in range(8)],
}  # fmt: skip
MODELS = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, wide heads": ("llama", {"head_dim": 32, "rms_norm_eps": 1e-3}),
    "llama, Llama 3.1's rotary embedding": (
        "llama",
        {
            "head_dim": 32, "max_position_embeddings": 16384,
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            },
        },
    ),
    "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}}),
    "qwen2": ("qwen2", {}),
    "qwen2, YaRN": (
        "qwen2",
        {
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64
            }
        },
    ),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "phi3": ("phi3", {"sliding_window": 8}),
    "phi3, half a head turns": (
        "phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    ),
    "phi3, LongRoPE": ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 128}),
    "granite": (
        "granite",
        {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.1, "logits_scaling": 4.0},
    ),
    "gemma": ("gemma", {"head_dim": 32}),
    "gemma2": ("gemma2", WINDOW | {"head_dim": 16, "query_pre_attn_scalar": 16, "final_logit_softcapping": 9.0}),
    "gemma3": ("gemma3_text", WINDOW | {"head_dim": 32, "query_pre_attn_scalar": 32, "num_hidden_layers": 7}),
}  # fmt: skip


def logits(model: torch.nn.Module, length: int = 200) -> torch.Tensor:
    ids = torch.randint(0, 256, (1, length), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        return model(input_ids=ids).logits


@pytest.mark.parametrize("named", ["file", "folder"])
def test_gguf_file_is_converted_once_into_the_same_model(named, own_cache, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / "models").mkdir()
    original = tiny_model()
    write_gguf(tmp_path / "models" / "tiny.gguf", original)
    name = str(tmp_path / "models" / ("tiny.gguf" if named == "file" else ""))
    for _ in range(2):
        model, tokenizer, sha256 = load_target(name, dtype="float32")
    # First config and tokenizer only, which suffice for a target in stored bits; then everything for transformers
    assert len([line for line in caplog.messages if "Converting tiny-" in line]) == 2
    described, _ = sorted((own_cache / "models").iterdir(), key=lambda folder: not folder.name.endswith("-tokenizer"))
    assert not list(described.glob("*.safetensors")) and sha256 == weights.weights_sha256(
        tmp_path / "models" / "tiny.gguf"
    )
    ids = tokenizer("Hi the sky")["input_ids"]
    assert tokenizer.decode(ids) == "Hi the sky"
    for name, tensor in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.bfloat16().float()), name
    assert model.config.max_position_embeddings == original.config.max_position_embeddings


@pytest.mark.parametrize("name", MODELS)
def test_file_of_every_architecture_gives_the_same_model(name, tmp_path):
    model_type, settings = MODELS[name]
    model = random_model(model_type, 0.1, **SIZES | settings)
    read = stock_model(read_gguf_model(write_gguf(tmp_path / "model.gguf", model)), torch.float32)
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(read.state_dict()[key], tensor, msg=key)
    torch.testing.assert_close(logits(read), logits(model))


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("blk.1.ffn_up.weight", None, r"cannot be read: it has no blk\.1\.ffn_up\.weight"),
        ("output_norm.weight", None, r"cannot be read: it has no output_norm\.weight"),
        ("token_embd.weight", None, r"cannot be read: it has no matrix token_embd\.weight"),
        (
            "blk.0.attn_q_norm.weight",
            np.ones(16, np.float32),
            r"has the unexpected tensors blk\.0\.attn_q_norm\.weight",
        ),
        ("blk.1.attn_k.weight", np.ones((64, 64), np.float32), r"attn_k\.weight has shape \(64, 64\), .* \(32, 64\)"),
    ],
)
def test_missing_unknown_or_mismatched_tensor_is_named(name, tensor, sentence, own_cache, tmp_path):
    write_gguf(tmp_path / "odd.gguf", tiny_model(), tensors={name: tensor})
    with pytest.raises(ValueError, match=rf"odd\.gguf .*{sentence}\.$"):
        load_config(str(tmp_path / "odd.gguf"))
    assert not list((own_cache / "models").glob("odd*"))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({".attention.sliding_window": 16}, r"it has unsupported metadata keys, llama\.attention\.sliding_window"),
        ({".attn_logit_softcapping": 30.0}, r"it has unsupported metadata keys, llama\.attn_logit_softcapping"),
        ({".expert_count": 8}, r"llama\.expert_count is 8, and only 0 is supported"),
        ({".attention.causal": False}, r"llama\.attention\.causal is False"),
        ({".attention.layer_norm_rms_epsilon": None}, r"it has no llama\.attention\.layer_norm_rms_epsilon"),
        ({".block_count": 0}, r"llama\.block_count must be a whole number at least 1 and at most 2,147,483,647; got 0"),
        ({".rope.freq_base": "high"}, r"llama\.rope\.freq_base must be a number above 0; got 'high'"),
        ({".block_count": 3}, r"it has no blk\.2\.attn_k\.weight, .* and 6 more"),
        ({".vocab_size": 270}, r"vocab_size is 270, and its tensors allow at most 260"),
        ({".attention.value_length": 8}, r"attention\.value_length is 8, but its tensors and other sizes imply 16"),
        ({".attention.head_count_kv": [2, 1]}, r"llama\.attention\.head_count_kv differs between layers"),
        ({".rope.dimension_count": 8}, r"its rotary embedding covers 8 of a head's 16 numbers"),
        ({".rope.scaling.type": "longrope", ".rope.scaling.factor": 2.0}, "its rotary scaling longrope with factor"),
        ({".rope.scaling.type": "yarn", ".rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor is 0.5, and only 1.0"),
        ({".block_count": 2**31 - 1}, r"llama\.block_count is 2,147,483,647, and its tensors allow at most 21"),
        ({".attention.key_length": 2**30}, r"key_length is 1,073,741,824, and its tensors allow at most"),
        ({".attention.head_count": 2**30}, r"head_count is 1,073,741,824, and its tensors allow at most"),
        ({".attention.head_count_kv": [2, 2, 2]}, r"head_count_kv has 3 values for 2 layers"),
        ({"general.type": "adapter"}, "its type is adapter, not model"),
    ],
)  # fmt: skip
def test_unsupported_metadata_is_named(keys, sentence, own_cache, tmp_path):
    write_gguf(tmp_path / "model.gguf", tiny_model(), keys=keys)
    with pytest.raises(ValueError, match=rf"model\.gguf cannot be read: .*{sentence}"):
        load_config(str(tmp_path / "model.gguf"))


def test_other_rope_factors_than_those_of_llama_3_1_are_named(tmp_path):
    factors = {"rope_freqs.weight": np.linspace(1, 8, 8, dtype=np.float32)}
    path = write_gguf(tmp_path / "model.gguf", tiny_model(), tensors=factors)
    with pytest.raises(ValueError, match=r"the factors in rope_freqs\.weight follow another rule than Llama 3\.1's"):
        read_gguf_model(path)
    same = {"rope_freqs.weight": np.ones(8, dtype=np.float32)}
    path = write_gguf(tmp_path / "model.gguf", tiny_model(), tensors=same)
    assert read_gguf_model(path).config["rope_parameters"]["rope_type"] == "default"
    path = write_gguf(tmp_path / "model.gguf", tiny_model(), tensors={"rope_factors_long.weight": factors.popitem()[1]})
    with pytest.raises(ValueError, match=r"it has only rope_factors_long\.weight of its rotary factors"):
        read_gguf_model(path)


def test_every_end_of_turn_id_is_read(tmp_path):
    keys = {"tokenizer.ggml.eot_token_id": 257, "tokenizer.ggml.eom_token_id": 258}
    read = read_gguf_model(write_gguf(tmp_path / "model.gguf", tiny_model(), keys=keys))
    assert read.config["eos_token_id"] == [256, 257, 258]
    assert stop_ids(stock_model(read, torch.float32), byte_tokenizer()) == {256, 257, 258}


def test_unsupported_architecture_is_refused_in_one_sentence(own_cache, tmp_path):
    write_gguf(tmp_path / "odd.gguf", tiny_model(), architecture="oddity")
    with pytest.raises(ValueError, match=r"odd\.gguf cannot be read: its architecture oddity is not among"):
        load_config(str(tmp_path / "odd.gguf"))
    (tmp_path / "cut.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"cut\.gguf is truncated or corrupted"):
        load_config(str(tmp_path / "cut.gguf"))


def test_folder_with_several_files_is_refused(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"holds several GGUF files \(a\.gguf, b\.gguf\); name one of them"):
        registry.resolve(str(tmp_path), "none")


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((".rope.freq_base", value) for value in (NAN, INF, 0.0, -1.0)),
        *((".attention.layer_norm_rms_epsilon", value) for value in (NAN, -1e-5, INF, "small")),
        *((".rope.scaling.factor", value) for value in (NAN, -2.0)),
        (".rope.scaling.attn_factor", NAN),
        (".block_count", [2, 2]),
        (".attention.head_count", 4.0),
        (".attention.head_count_kv", "two"),
        ("tokenizer.ggml.add_bos_token", "false"),
        ("tokenizer.ggml.add_bos_token", 1),
        ("tokenizer.ggml.eos_token_id", [256]),
        ("tokenizer.ggml.eos_token_id", "256"),
        ("tokenizer.ggml.eot_token_id", 999_999),
        ("tokenizer.ggml.padding_token_id", 260),
        ("tokenizer.ggml.pre", ["gpt-2"]),
        ("tokenizer.ggml.merges", [1]),
        ("tokenizer.ggml.tokens", "abc"),
        ("tokenizer.chat_template", 5),
        ("general.alignment", True),
        ("general.alignment", "32"),
        ("general.architecture", 5),
        ("split.no", "zero"),
        ("split.count", [1]),
        ("general.sampling.temp", NAN),
        ("general.sampling.top_k", "many"),
    ],
)
def test_invalid_metadata_is_refused_in_one_sentence_with_its_key(key, value, own_cache, tmp_path):
    write_gguf(tmp_path / "model.gguf", tiny_model(), keys={key: value})
    name = re.escape(key.removeprefix("."))
    with pytest.raises(
        ValueError, match=rf"^\S+model\.gguf cannot be read: metadata key \S*{name} must be .*; got .*\.$"
    ):
        load_parts(LoadOptions(str(tmp_path / "model.gguf"), "none", "cpu", "float32"))


@pytest.mark.parametrize(("value", "sentence"), [(-1, "at least 0 .*; got -1"), (2**31 - 1, "number of tokens 260")])
def test_end_token_outside_the_vocabulary_is_named(value, sentence, tmp_path):
    """The int32 value -1 once made the last token of the vocabulary the end token."""
    path = write_gguf(tmp_path / "model.gguf", tiny_model(), keys={"tokenizer.ggml.eos_token_id": 256})
    data = path.read_bytes()
    offset = data.index(b"tokenizer.ggml.eos_token_id") + len("tokenizer.ggml.eos_token_id")
    path.write_bytes(data[:offset] + struct.pack("<Ii", 5, value) + data[offset + 8 :])
    with pytest.raises(ValueError, match=rf"tokenizer\.ggml\.eos_token_id must be .*{sentence}"):
        read_gguf_model(path)


@pytest.mark.parametrize(
    "name", ["output_norm.weight", "blk.1.attn_norm.weight", "blk.0.ffn_up.weight", "token_embd.weight"]
)
@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_non_finite_tensor_is_named(name, value, dtype, own_cache, tmp_path):
    path = write_gguf(tmp_path / "model.gguf", tiny_model())
    values = read_gguf_model(path).file.tensors[name].dequantized().copy()
    values.reshape(-1)[-1] = value
    write_gguf(path, tiny_model(), tensors={name: values})
    with pytest.raises(ValueError, match=rf"tensor {re.escape(name)} has values that are not finite"):
        load_parts(LoadOptions(str(path), "none", "cpu", dtype))


def test_recommended_sampling_is_read_and_other_settings_are_named_in_a_notice(own_cache, tmp_path):
    keys = {
        "temp": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "penalty_repeat": 1.05, "penalty_last_n": 64,
    }  # fmt: skip
    keys = {f"general.sampling.{key}": value for key, value in keys.items()}
    path = write_gguf(tmp_path / "model.gguf", tiny_model(), keys=keys)
    for dtype in ("float32", "bfloat16"):
        parts = load_parts(LoadOptions(str(path), "none", "cpu", dtype))
        assert parts.resources.target.makers_settings == {
            "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.05,
        }  # fmt: skip
        assert any("general.sampling.penalty_last_n 64" in notice for notice in parts.notices)
    off = {"general.sampling.penalty_last_n": 0, "general.sampling.penalty_repeat": 1.5}
    path = write_gguf(tmp_path / "off.gguf", tiny_model(), keys=off)
    assert load_parts(LoadOptions(str(path), "none", "cpu", "float32")).resources.target.makers_settings == {}


def test_conversion_can_be_cancelled(own_cache, tmp_path):
    def cancel(step: str, share: float | None, total: int | None) -> None:
        if step == progress.CONVERT and share:
            raise progress.Cancelled

    path = write_gguf(tmp_path / "model.gguf", tiny_model())
    with progress.reporting_to(cancel), pytest.raises(progress.Cancelled):
        load_target(str(path))
    assert load_target(str(path))[0].config.num_hidden_layers == 2
