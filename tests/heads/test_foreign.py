"""Checkpoints of other projects: official Jakiro, Jakiro* and EAGLE folders load, and mismatches are named."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from jakiro.heads.checkpoint import load_head, misfits, weights_file
from tests.heads.golden import CASES, DATA, assert_gives_the_official_features, assert_grows_the_official_trees

FILES = ("model.safetensors", "pytorch_model.bin")
HIDDEN_SIZE, INNER_SIZE, VOCAB_SIZE = 32, 48, 40
LINEAR = ("gate_proj", "up_proj", "down_proj")


def official_config(**values):
    """Return a config.json as published with the weights."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": INNER_SIZE,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB_SIZE,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 128,
        "pretraining_tp": 1,
        "num_local_experts": 2,
        "num_experts_per_tok": 2,
        "torch_dtype": "float16",
    } | values


def official_tensors(kind, bias=True):
    """Return a random state dict with the published names."""
    generator = torch.Generator().manual_seed(3)

    def random(*shape):
        return torch.randn(shape, generator=generator) * 0.2

    size, moe = HIDDEN_SIZE, "layers.0.mlp_moe"
    tensors = {
        "fc.weight": random(size, 2 * size),
        "layers.0.self_attn.q_proj.weight": random(size, size),
        "layers.0.self_attn.k_proj.weight": random(size // 2, size),
        "layers.0.self_attn.v_proj.weight": random(size // 2, size),
        "layers.0.self_attn.o_proj.weight": random(size, size),
        "layers.0.post_attention_layernorm.weight": 1 + random(size),
    }
    if bias:
        tensors["fc.bias"] = random(size)
    if kind == "jakiro":
        tensors[f"{moe}.gate.weight"] = random(4, size)
        for expert in range(2):
            tensors |= {f"{moe}.experts.{expert}.{name}.weight": random(size, size) for name in LINEAR}
    elif kind == "jakiro*":
        tensors[f"{moe}.gate.weight"] = random(2, size)
        for expert in range(2):
            tensors[f"{moe}.experts.{expert}.fc.weight"] = random(INNER_SIZE, size)
            tensors[f"{moe}.experts.{expert}.proj.weight"] = random(size, INNER_SIZE)
    else:
        shapes = dict(zip(LINEAR, ((INNER_SIZE, size), (INNER_SIZE, size), (size, INNER_SIZE)), strict=True))
        tensors |= {f"layers.0.mlp.{name}.weight": random(*shape) for name, shape in shapes.items()}
    return tensors


def write_folder(folder, tensors, values, file="model.safetensors"):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    if file.endswith(".bin"):
        torch.save(tensors, folder / file)
    else:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / file)
    return folder


def refusal(folder, tensors, values=None):
    """Return the message with which a folder is refused."""
    with pytest.raises(ValueError) as caught:
        load_head(write_folder(folder, tensors, values or official_config()))
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case{case['case']}")
def test_official_folder_grows_the_official_trees(case, file, tmp_path):
    weights = load_file(DATA / f"case{case['case']}_weights.safetensors")
    output = weights.pop("lm_head.weight")
    values = official_config(
        **{name: case[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size")},
        intermediate_size=3 * case["hidden_size"] + 7,
        rms_norm_eps=case["rms_norm_eps"],
        rope_theta=case["rope_theta"],
        **({} if "fc.bias" in weights else {"bias": False}),
    )
    head = load_head(write_folder(tmp_path / "head", weights, values, file))
    head.bind(weights["embed_tokens.weight"], output)
    assert_grows_the_official_trees(head, case)


@pytest.mark.parametrize("file", FILES)
def test_official_decoupled_folder_gives_the_official_features(file, tmp_path):
    weights = load_file(DATA / "star_weights.safetensors")
    embedding = weights["embed_tokens.weight"]
    weights.pop("lm_head.weight", None)
    values = official_config(hidden_size=64, intermediate_size=96, vocab_size=embedding.shape[0])
    values["bias"] = "fc.bias" in weights
    head = load_head(write_folder(tmp_path / "head", weights, values, file)).bind(embedding, embedding)
    assert_gives_the_official_features(head)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    ("kind", "fusion", "num_experts", "width"),
    [("jakiro", "summed", 2, HIDDEN_SIZE), ("jakiro*", "decoupled", 2, INNER_SIZE), ("eagle", "summed", 1, INNER_SIZE)],
)
def test_each_kind_is_recognised_by_its_tensors(kind, fusion, num_experts, width, bias, tmp_path):
    tensors = official_tensors(kind, bias)
    head = load_head(write_folder(tmp_path / "head", tensors, official_config(**({} if bias else {"bias": False}))))
    config = head.config
    assert (head.mixes_experts, head.num_experts) == (fusion == "decoupled", num_experts)
    assert config.expert_intermediate_size == width
    assert config.fc_bias == bias and config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}
    assert torch.equal(head.state_dict()["fc.weight"], tensors["fc.weight"])


def test_eagle_head_computes_its_dense_layer(tmp_path):
    tensors = official_tensors("eagle")
    head = load_head(write_folder(tmp_path / "head", tensors, official_config()))
    generator = torch.Generator().manual_seed(0)
    embeddings, features = torch.randn((2, 1, 5, HIDDEN_SIZE), generator=generator)
    with torch.no_grad():
        output = head(embeddings, features, torch.arange(5)[None])
        residual = output.residual
        variance = residual.pow(2).mean(-1, keepdim=True)
        normed = residual * (variance + 1e-6).rsqrt() * tensors["layers.0.post_attention_layernorm.weight"]
        gate, up, down = (tensors[f"layers.0.mlp.{name}.weight"] for name in LINEAR)
        expected = residual + (torch.nn.functional.silu(normed @ gate.T) * (normed @ up.T)) @ down.T
    torch.testing.assert_close(output.features, expected, atol=1e-5, rtol=1e-5)
    assert output.contrastive is None and (output.router_weights == 1).all()


MUTATIONS = [(kind, name) for kind in ("jakiro", "jakiro*", "eagle") for name in official_tensors(kind)]


@pytest.mark.parametrize(("kind", "name"), MUTATIONS, ids=lambda value: value.replace("layers.0.", ""))
def test_tensor_with_another_shape_is_named_with_both_shapes(kind, name, tmp_path):
    for change in (lambda tensor: tensor[:-1], lambda tensor: torch.cat([tensor, tensor], dim=-1)):
        tensors = official_tensors(kind)
        tensors[name], right = change(tensors[name]).clone(), tuple(tensors[name].shape)
        sentence = refusal(tmp_path / "head", tensors)
        assert str(tuple(tensors[name].shape)) in sentence and str(right) in sentence
        assert name.split(".", 2)[-1].replace("mlp.", "") in sentence


@pytest.mark.parametrize("name", official_tensors("jakiro"), ids=lambda value: value.replace("layers.0.", ""))
def test_tensor_with_another_name_is_named_as_missing_and_as_unexpected(name, tmp_path):
    tensors = official_tensors("jakiro")
    tensors[name + "s"] = tensors.pop(name)
    sentence = refusal(tmp_path / "head", tensors)
    assert "missing ['" in sentence and "unexpected ['" in sentence and sentence.count(name.split(".")[-2]) >= 2
    del tensors[name + "s"]
    assert "missing ['" in refusal(tmp_path / "head", tensors)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"qkv_bias": True}, ["qkv_bias"]),
        ({"num_local_experts": 4}, ["has 4 experts", "runs 1 or 2", "first two"]),
        ({"num_hidden_layers": 2}, ["2 decoder layers", "runs 1"]),
        ({"hidden_act": "gelu"}, ["gelu", "silu"]),
        ({"bias": "yes"}, ["bias = 'yes'"]),
        ({"bias": 1}, ["bias = 1"]),
        ({"bias": None}, ["bias = None"]),
        ({"hidden_act": None}, ["activation None"]),
        ({"rope_scaling": {"type": "spiral", "factor": 2.0}}, ["spiral"]),
        ({"bias": False}, ["unexpected ['fc.bias']"]),
        ({"hidden_size": None}, ["no whole numbers for hidden_size"]),
        ({"hidden_size": 64}, [f"{HIDDEN_SIZE}", "64"]),
        ({"num_key_value_heads": 4}, ["k_proj", str((16, 32)), str((32, 32))]),
    ],
    ids=str,
)
def test_unsupported_or_mismatched_config_is_refused_by_name(values, words, tmp_path):
    sentence = refusal(tmp_path / "head", official_tensors("jakiro"), official_config(**values))
    assert all(word in sentence for word in words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("layers.0.self_attn.q_proj.bias", "unexpected ['layers.0.self_attn.q_proj.bias']"),
        ("layers.0.mlp_moe.experts.2.gate_proj.weight", "has 3 experts"),
        ("layers.1.self_attn.q_proj.weight", "2 decoder layers"),
        ("hydra_mlp.0.weight", "a Hydra head"),
        ("lm_head.weight", "unexpected ['lm_head.weight']"),
    ],
)
def test_tensors_of_other_kinds_of_heads_are_refused_by_name(name, words, tmp_path):
    tensors = official_tensors("jakiro") | {name: torch.zeros(4, 4)}
    assert words in refusal(tmp_path / "head", tensors)


def test_weights_that_are_no_head_are_refused(tmp_path):
    sentence = refusal(tmp_path / "head", {"model.layers.0.self_attn.q_proj.weight": torch.zeros(4, 4)})
    assert "The kind of this draft head is unknown" in sentence and "model.layers.0.self_attn.q_proj.weight" in sentence


def test_embedding_is_ignored_only_in_the_shape_of_the_target(tmp_path):
    tensors = official_tensors("jakiro") | {"embed_tokens.weight": torch.zeros(VOCAB_SIZE, HIDDEN_SIZE)}
    head = load_head(write_folder(tmp_path / "head", tensors, official_config()))
    assert head.embedding is None
    tensors["embed_tokens.weight"] = torch.zeros(VOCAB_SIZE + 1, HIDDEN_SIZE)
    sentence = refusal(tmp_path / "head", tensors)
    assert "(41, 32)" in sentence and "(40, 32)" in sentence


def test_stored_rotary_frequencies_are_ignored_only_if_they_match_the_config(tmp_path):
    def stored(base):
        frequencies = 1.0 / base ** (torch.arange(0, 8, 2).float() / 8)
        return official_tensors("eagle") | {"layers.0.self_attn.rotary_emb.inv_freq": frequencies}

    load_head(write_folder(tmp_path / "head", stored(10000.0), official_config()))
    sentence = refusal(tmp_path / "head", stored(500000.0))
    assert "RoPE base 500,000" in sentence and "10,000" in sentence


class Harmful:
    def __reduce__(self):
        return (pytest.fail, ("code in a checkpoint was run",))


@pytest.mark.parametrize("content", [Harmful(), b"nothing", [1, 2]], ids=["code", "broken", "no tensors"])
def test_pickled_code_is_never_run_and_broken_files_are_named(content, tmp_path):
    folder = write_folder(tmp_path / "head", {}, official_config(), "pytorch_model.bin")
    if isinstance(content, bytes):
        (folder / "pytorch_model.bin").write_bytes(content)
    else:
        torch.save({"fc.weight": content}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"The draft head's pytorch_model\.bin (is broken|is not a dictionary)"):
        load_head(folder)


def test_safetensors_are_preferred_and_missing_weights_name_all_files(tmp_path):
    folder = write_folder(tmp_path / "head", official_tensors("eagle"), official_config(), "pytorch_model.bin")
    assert weights_file(folder).name == "pytorch_model.bin"
    save_file(official_tensors("eagle"), folder / "model.safetensors")
    assert weights_file(folder).name == "model.safetensors"
    for name in FILES:
        (folder / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=r"head\.safetensors is missing, and so are model\.safetensors, model\.sa"
    ):
        load_head(folder)


def target_config(**values):
    return LlamaConfig(
        **{
            "hidden_size": HIDDEN_SIZE,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": VOCAB_SIZE,
            "intermediate_size": INNER_SIZE,
        }
        | values
    )


def rope(**values):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0} | values}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hidden_size": 64}, ["hidden size 32", "the target 64"]),
        ({"vocab_size": 41}, ["vocabulary 40", "the target 41"]),
        ({"num_attention_heads": 8}, ["attention heads 4", "the target 8"]),
        ({"num_key_value_heads": 4}, ["key/value heads 2", "the target 4"]),
        (rope(rope_theta=500000.0), ["rope_theta 10000.0", "the target rope_theta 500000.0"]),
        (rope(rope_type="linear", factor=4.0), ["factor none, rope_type default", "factor 4.0, rope_type linear"]),
    ],
    ids=str,
)
def test_head_for_another_target_is_named_with_both_values(values, words, tmp_path):
    head = load_head(write_folder(tmp_path / "head", official_tensors("jakiro"), official_config()))
    assert misfits(head.config, target_config()) == []
    sentences = misfits(head.config, target_config(**values))
    assert len(sentences) == 1 and all(word in sentences[0] for word in [*words, "choose a head trained for this"])


def test_old_and_new_forms_of_rotary_scaling_are_the_same(tmp_path):
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    old = {"rope_theta": 500000.0, "rope_scaling": {"type": "llama3"} | llama3}
    head = load_head(write_folder(tmp_path / "head", official_tensors("jakiro"), official_config(**old)))
    new = rope(rope_type="llama3", rope_theta=500000.0, **llama3)
    assert misfits(head.config, target_config(**new)) == []
    new["rope_parameters"]["low_freq_factor"] = 2.0
    assert "low_freq_factor 1.0" in misfits(head.config, target_config(**new))[0]
