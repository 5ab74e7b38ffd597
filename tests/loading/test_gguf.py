"""Targets in GGUF files: converted once, the same model as the one written; what cannot be read is said."""

import logging

import numpy as np
import pytest
import torch

from jakiro.loading import registry, weights
from jakiro.loading.gguf_model import read_gguf_model, stock_model
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
def test_a_gguf_file_is_converted_once_and_is_the_same_model(named, own_cache, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / "models").mkdir()
    written = tiny_model()
    write_gguf(tmp_path / "models" / "tiny.gguf", written)
    name = str(tmp_path / "models" / ("tiny.gguf" if named == "file" else ""))
    for _ in range(2):
        model, tokenizer, sha256 = load_target(name, dtype="float32")
    # Config and tokenizer, which a target in its own bits needs alone; then all of it, for transformers
    assert len([line for line in caplog.messages if "Converting tiny-" in line]) == 2
    described, _ = sorted((own_cache / "models").iterdir(), key=lambda folder: not folder.name.endswith("-tokenizer"))
    assert not list(described.glob("*.safetensors")) and sha256 == weights.weights_sha256(
        tmp_path / "models" / "tiny.gguf"
    )
    ids = tokenizer("Hi the sky")["input_ids"]
    assert tokenizer.decode(ids) == "Hi the sky"
    for name, tensor in written.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.bfloat16().float()), name
    assert model.config.max_position_embeddings == written.config.max_position_embeddings


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_is_the_same_model(name, tmp_path):
    model_type, settings = MODELS[name]
    model = random_model(model_type, 0.1, **SIZES | settings)
    read = stock_model(read_gguf_model(write_gguf(tmp_path / "model.gguf", model)), torch.float32)
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(read.state_dict()[key], tensor, msg=key)
    torch.testing.assert_close(logits(read), logits(model))


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("blk.1.ffn_up.weight", None, r"cannot be read: it lacks blk\.1\.ffn_up\.weight"),
        ("output_norm.weight", None, r"cannot be read: it lacks output_norm\.weight"),
        ("token_embd.weight", None, r"cannot be read: it lacks token_embd\.weight"),
        ("blk.0.attn_q_norm.weight", np.ones(16, np.float32), r"it also holds blk\.0\.attn_q_norm\.weight"),
        ("blk.1.attn_k.weight", np.ones((64, 64), np.float32), r"attn_k\.weight has shape \(64, 64\), .* \(32, 64\)"),
    ],
)
def test_a_matrix_that_is_missing_unknown_or_of_another_shape_is_named_and_nothing_is_made_up(
    name, tensor, sentence, own_cache, tmp_path
):
    write_gguf(tmp_path / "odd.gguf", tiny_model(), tensors={name: tensor})
    with pytest.raises(ValueError, match=rf"odd\.gguf .*{sentence}\.$"):
        load_config(str(tmp_path / "odd.gguf"))
    assert not list((own_cache / "models").glob("odd*"))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({".attention.sliding_window": 16}, r"what llama\.attention\.sliding_window would change is not known here"),
        ({".attn_logit_softcapping": 30.0}, r"what llama\.attn_logit_softcapping would change"),
        ({".expert_count": 8}, r"llama\.expert_count is 8, and only 0 is understood"),
        ({".attention.causal": False}, r"llama\.attention\.causal is False"),
        ({".attention.layer_norm_rms_epsilon": None}, r"it lacks llama\.attention\.layer_norm_rms_epsilon"),
        ({".block_count": 0}, r"llama\.block_count is 0, which is no whole number above 0"),
        ({".rope.freq_base": "high"}, r"llama\.rope\.freq_base is the text high, which is no number"),
        ({".block_count": 3}, r"it lacks blk\.2\.attn_k\.weight, .* and 6 more"),
        ({".vocab_size": 270}, r"vocab_size is 270, where the rest of it means 260"),
        ({".attention.value_length": 8}, r"attention\.value_length is 8, where the rest of it means 16"),
        ({".attention.head_count_kv": [2, 1]}, r"llama\.attention\.head_count_kv differs between layers"),
        ({".rope.dimension_count": 8}, r"its rotary embedding turns 8 of a head's 16 numbers"),
        ({".rope.scaling.type": "longrope", ".rope.scaling.factor": 2.0}, "its rotary embedding is scaled by longrope"),
        ({".rope.scaling.type": "yarn", ".rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor is 0.5, and only 1.0"),
        ({"general.type": "adapter"}, "it holds no model but: adapter"),
    ],
)  # fmt: skip
def test_a_key_that_changes_the_model_is_read_or_named(keys, sentence, own_cache, tmp_path):
    write_gguf(tmp_path / "model.gguf", tiny_model(), keys=keys)
    with pytest.raises(ValueError, match=rf"model\.gguf cannot be read: .*{sentence}"):
        load_config(str(tmp_path / "model.gguf"))


def test_factors_of_another_rotary_embedding_than_llama_3_1s_are_named(tmp_path):
    factors = {"rope_freqs.weight": np.linspace(1, 8, 8, dtype=np.float32)}
    path = write_gguf(tmp_path / "model.gguf", tiny_model(), tensors=factors)
    with pytest.raises(ValueError, match=r"the factors in rope_freqs\.weight follow another rule than Llama 3\.1's"):
        read_gguf_model(path)
    same = {"rope_freqs.weight": np.ones(8, dtype=np.float32)}
    path = write_gguf(tmp_path / "model.gguf", tiny_model(), tensors=same)
    assert read_gguf_model(path).config["rope_parameters"]["rope_type"] == "default"
    path = write_gguf(tmp_path / "model.gguf", tiny_model(), tensors={"rope_factors_long.weight": factors.popitem()[1]})
    with pytest.raises(ValueError, match=r"it holds rope_factors_long\.weight alone"):
        read_gguf_model(path)


def test_every_id_that_ends_a_turn_is_read(tmp_path):
    more = {"tokenizer.ggml.eot_token_id": 257, "tokenizer.ggml.eom_token_id": 258}
    read = read_gguf_model(write_gguf(tmp_path / "model.gguf", tiny_model(), keys=more))
    assert read.config["eos_token_id"] == [256, 257, 258]
    assert stop_ids(stock_model(read, torch.float32), byte_tokenizer()) == {256, 257, 258}


def test_an_architecture_that_cannot_be_read_is_one_sentence(own_cache, tmp_path):
    write_gguf(tmp_path / "odd.gguf", tiny_model(), architecture="oddity")
    with pytest.raises(ValueError, match=r"odd\.gguf cannot be read: its architecture oddity is not among"):
        load_config(str(tmp_path / "odd.gguf"))
    (tmp_path / "cut.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"cut\.gguf is cut or damaged"):
        load_config(str(tmp_path / "cut.gguf"))


def test_a_folder_with_several_asks_for_one(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"holds several GGUF files \(a\.gguf, b\.gguf\); name one of them"):
        registry.resolve(str(tmp_path), "none")
