"""Targets in GGUF files: converted once, the same model as the one written; what cannot be read is said."""

import logging

import gguf
import pytest
import torch

from jakiro.zoo import table as zoo
from jakiro.zoo import weights
from jakiro.zoo.weights import load_config, load_target
from tests.support import byte_tokenizer, tiny_model

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of queries or keys in the order of GGUF's rotary embedding: both halves of a head in turn."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def write_gguf(path, architecture: str = "llama"):
    """The tiny model with its byte tokenizer as llama.cpp writes them; returns the model."""
    model, config = tiny_model().to("cpu"), tiny_model().config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    tokens = byte_tokenizer().convert_ids_to_tokens(range(len(byte_tokenizer())))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*tokens[:255], "th", *tokens[256:]])
    writer.add_token_types([1] * 256 + [3] * 4)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(256)
    for name, tensor in model.state_dict().items():
        parts = name.removeprefix("model.").removesuffix(".weight")
        if parts.startswith("layers."):
            _, layer, part = parts.split(".", 2)
            heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}.get(part)
            tensor = interleaved(tensor, heads) if heads else tensor
            written = f"blk.{layer}.{NAMES[part]}.weight"
        else:
            written = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[parts] + ".weight"
        writer.add_tensor(written, tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("named", ["file", "folder"])
def test_a_gguf_file_is_converted_once_and_is_the_same_model(named, cache, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / "models").mkdir()
    written = write_gguf(tmp_path / "models" / "tiny.gguf")
    name = str(tmp_path / "models" / ("tiny.gguf" if named == "file" else ""))
    for _ in range(2):
        model, tokenizer, sha256 = load_target(name, dtype="float32")
    assert len([line for line in caplog.messages if "Converting tiny-" in line]) == 1
    assert sha256 == weights.weights_sha256(next((cache / "models").iterdir()))
    ids = tokenizer("Hi the sky")["input_ids"]
    assert tokenizer.decode(ids) == "Hi the sky"
    for name, tensor in written.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.bfloat16().float()), name
    assert model.config.max_position_embeddings == written.config.max_position_embeddings


def test_an_architecture_that_cannot_be_read_is_one_sentence(cache, tmp_path):
    write_gguf(tmp_path / "odd.gguf", "oddity")
    with pytest.raises(ValueError, match=r"odd\.gguf could not be loaded: its GGUF file cannot be read \(.*oddity.*\)"):
        load_config(str(tmp_path / "odd.gguf"))
    (tmp_path / "cut.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"cut\.gguf could not be loaded: its GGUF file cannot be read"):
        load_config(str(tmp_path / "cut.gguf"))


def test_a_folder_with_several_asks_for_one(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"holds several GGUF files \(a\.gguf, b\.gguf\); name one of them"):
        zoo.resolve(str(tmp_path), "none")
