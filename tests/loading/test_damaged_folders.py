"""Damaged, incomplete and quantized target folders: one sentence each, if possible before weights are read."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from jakiro.heads.checkpoint import save_head
from jakiro.loading import weights
from jakiro.loading.loader import LoadOptions, load_parts
from tests.support import save_target, tiny_head, tiny_model, tiny_target


@pytest.fixture
def folder(own_cache, tmp_path):
    """Return the folder of a tiny target in several shards."""
    save_target(tmp_path / "target", tiny_model(), max_shard_size="100KB")
    return tmp_path / "target"


def first_shard(folder):
    return sorted(folder.glob("model-*.safetensors"))[0]


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def config(**values):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def quantised(**values):
    return config(quantization_config=values)


def cut(size):
    return lambda folder: first_shard(folder).write_bytes(first_shard(folder).read_bytes()[:size])


def without_weights(folder):
    for path in folder.glob("model*"):
        path.unlink()


def stored_as(kind, **scales):
    """Return a change that stores a matrix of the first shard in 8 bits, with scales."""

    def change(folder):
        tensors = load_file(first_shard(folder))
        name = next(name for name in tensors if name.endswith("_proj.weight"))
        tensors[name] = tensors[name].to(kind)
        extra = {f"{name.removesuffix('weight')}{scale}": value.clone() for scale, value in scales.items()}
        save_file(tensors | extra, first_shard(folder), {"format": "pt"})

    return change


SCALE = torch.full((1,), 0.5)
EARLY = {
    "8-bit floats": (
        stored_as(torch.float8_e4m3fn, weight_scale=SCALE),
        "_proj.weight as F8_E4M3",
        "does not describe a quantisation",
    ),
    "8-bit numbers": (stored_as(torch.int8, weight_scale=SCALE), "_proj.weight as I8", "or weights in 16 bits"),
    "an unknown way of quantising": (
        quantised(quant_method="modelopt"),
        "its quantisation cannot be read",
    ),
    "a cut shard": (cut(5000), "is corrupted (Error while deserializing header", "fetch or copy it again"),
    "a missing shard": (lambda folder: first_shard(folder).unlink(), "model-00001-of-", "has no file"),
    "an index that is none": (text("model.safetensors.index.json", "{"), "is not an index of weight shards"),
    "no weights": (without_weights, "holds no weights; expected model.safetensors or pytorch_model.bin"),
    "a config that is no JSON": (text("config.json", '{"a'), "its config cannot be read", "not a valid JSON file"),
    "an unknown architecture": (config(model_type="wizard"), "model type `wizard`"),
    "an unknown activation": (config(hidden_act="magic"), "its config cannot be read (KeyError: 'magic')"),
    **{
        f"{name} {value}": (config(**{name: value}), f"{name} in its config must be ", "Correct the config")
        for name, value in (
            ("rms_norm_eps", float("nan")),
            ("rms_norm_eps", -1e-5),
            ("max_position_embeddings", 10**30),
            ("num_key_value_heads", 0),
            ("vocab_size", 2**40),
        )
    },
    "a rotary base of 0": (config(rope_parameters={"rope_type": "default", "rope_theta": 0.0}), "rope_theta in its"),
    "a rotary factor that is NaN": (
        config(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": float("nan")}),
        "factor in its config must be a number above 0; got nan",
    ),
    "a tokenizer that is no JSON": (text("tokenizer.json", '{"a'), "its tokenizer cannot be read"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "its tokenizer cannot be read"),
    "a generation config that is no JSON": (text("generation_config.json", "{"), "generation_config.json is not JSON"),
}
LATE = {
    "scales with plain weights": (
        stored_as(torch.float32, weight_scale=SCALE, input_scale=SCALE),
        "its weights hold tensors that its config does not imply: model.layers.0.",
        "input_scale, model.layers.0.",
    ),
    "other sizes": (config(intermediate_size=96), "have other shapes than its config implies in model.layers.0.mlp."),
    "more layers": (config(num_hidden_layers=3), "its weights have no model.layers.2.", "and 6 more"),
    "AWQ without its package": (
        quantised(quant_method="awq", bits=4, group_size=128, version="gemm", zero_point=True),
        "it needs a package that is not installed",
        "run “pip install gptqmodel”",
    ),
    "bitsandbytes without it": (quantised(quant_method="bitsandbytes", load_in_4bit=True), "run “pip install -U bitsa"),
}


def refused(folder, head="none"):
    with pytest.raises(ValueError) as caught:
        load_parts(LoadOptions(str(folder), str(head), "cpu", "float32"))
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".") and len(sentence) < 500, sentence
    return sentence


@pytest.mark.parametrize("name", EARLY | LATE)
def test_damaged_folder_is_one_sentence_if_possible_before_weights_are_read(name, folder, monkeypatch):
    damage, *words = (EARLY | LATE)[name]
    damage(folder)
    if name in EARLY:
        monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("weights were read"))
    sentence = refused(folder)
    assert all(word in sentence for word in words), sentence


def test_quantized_weights_on_the_hub_are_refused_before_they_are_fetched(folder, monkeypatch):
    config = weights.load_config(str(folder))
    monkeypatch.setattr(weights, "load_config", lambda name: config)
    kinds = {"model.safetensors": {"a_proj.weight": "F8_E4M3"}}
    monkeypatch.setattr(weights, "tensor_types", lambda hub_id, revision: kinds)
    with pytest.raises(ValueError, match=r"model.safetensors of org/name holds .*a_proj.weight as F8_E4M3, and config"):
        weights.check_target("org/name")


def test_obsolete_buffers_of_older_checkpoints_are_ignored(folder):
    tensors = load_file(first_shard(folder))
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    save_file(tensors | buffer, first_shard(folder), {"format": "pt"})
    model, _ = weights.load_model(str(folder), dtype="float32")
    assert torch.equal(model.lm_head.weight, tiny_model().lm_head.weight)


def test_tokenizer_is_checked_before_the_head_and_the_head_before_the_weights(folder, tmp_path, monkeypatch):
    save_head(tiny_head(tiny_target()), tmp_path / "head")
    (tmp_path / "head" / "head.safetensors").write_bytes(b"")
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("weights were read"))
    assert "head.safetensors is broken" in refused(folder, tmp_path / "head")
    (folder / "tokenizer.json").write_text("{")
    assert "its tokenizer cannot be read" in refused(folder, tmp_path / "head")


def break_numbers(folder):
    """Write invalid numbers into the last shard, with the same size and time."""
    path = sorted(folder.glob("model-*.safetensors"))[-1]
    about, data = path.stat(), bytearray(path.read_bytes())
    data[-4000:] = b"\xff" * 4000
    path.write_bytes(bytes(data))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def test_failed_start_with_damaged_weights_names_the_folder(folder):
    load_parts(LoadOptions(str(folder), "none", "cpu", "float32"))
    break_numbers(folder)
    words = (
        f"{folder} is corrupted: its weights changed although their sizes and times did not; fetch or copy it again."
    )
    assert refused(folder) == words


def test_failed_start_with_unchanged_weights_names_its_cause(folder):
    break_numbers(folder)
    with pytest.raises(ValueError, match="llama cannot be a target"):
        load_parts(LoadOptions(str(folder), "none", "cpu", "float32"))
