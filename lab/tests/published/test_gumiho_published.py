"""Published Gumiho heads draft the result of a small reference that follows the paper's formulas."""

import json
from functools import partial

import pytest
import torch
from torch.nn import functional

from jakiro.heads import checkpoint
from jakiro.heads.checkpoint import misfits, weights_file
from jakiro.loading import registry
from jakiro.system import file_sha256
from lab import KNOWN
from tests.heads.test_foreign_parallel import NUM_MLPS, blocks_at, chain_of, random, silu_block, target  # noqa: F401
from tests.support import HIDDEN_SIZE, TOKENIZER_SIZE

HEADS, KV_HEADS, WIDTH, INNER = 4, 2, 16, 96
load_head = partial(checkpoint.load_head, kinds=KNOWN.kinds)


def gumiho_tensors(prefix="mlp.mlp.", blocks=2):
    size = HIDDEN_SIZE
    tensors = {
        "fc.weight": random(size, 2 * size),
        "fc.bias": random(size),
        "layers.1.input_layernorm.weight": 1 + random(size),
    }
    for index in range(2):
        shapes = {
            "self_attn.q_proj": (HEADS * WIDTH, size),
            "self_attn.k_proj": (KV_HEADS * WIDTH, size),
            "self_attn.v_proj": (KV_HEADS * WIDTH, size),
            "self_attn.o_proj": (size, HEADS * WIDTH),
            "mlp.gate_proj": (INNER, size),
            "mlp.up_proj": (INNER, size),
            "mlp.down_proj": (size, INNER),
        }
        tensors |= {f"layers.{index}.{name}.weight": random(*shape) for name, shape in shapes.items()}
        tensors[f"layers.{index}.post_attention_layernorm.weight"] = 1 + random(size)
    for number in range(NUM_MLPS):
        tensors |= {
            f"{prefix}{number}.0.linear.weight": random(size, 2 * size),
            f"{prefix}{number}.0.linear.bias": random(size),
        }
        tensors |= blocks_at(f"{prefix}{number}.", range(1, blocks + 1))
    return tensors


def gumiho_folder(folder, tensors, **values):
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN_SIZE,
        "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": 2, "vocab_size": TOKENIZER_SIZE, "rms_norm_eps": 1e-6, "max_position_embeddings": 256,
    } | values  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(tensors, folder / "pytorch_model.bin")
    return folder


def rotated(rows):
    """Return (heads, positions, width) rotated by their positions, base 10,000."""
    half = rows.shape[-1] // 2
    angles = torch.arange(rows.shape[1])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    first, second = rows[..., :half], rows[..., half:]
    return torch.cat(
        [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], dim=-1
    )


def normed(rows, weight):
    return rows * (rows.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def layers(tensors, rows):
    """Run two causal layers over all rows of one path; the first has no norm before its attention."""
    for index in range(2):
        prefix = f"layers.{index}."
        layer = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        read = normed(rows, layer["input_layernorm.weight"]) if index else rows
        query, key, value = (
            (read @ layer[f"self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, WIDTH)).transpose(0, 1)
            for name in "qkv"
        )
        key, value = (tensor.repeat_interleave(HEADS // KV_HEADS, dim=0) for tensor in (key, value))
        scores = rotated(query) @ rotated(key).transpose(1, 2) / WIDTH**0.5
        seen = torch.ones(len(rows), len(rows)).tril().bool()
        attended = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value
        rows = rows + attended.transpose(0, 1).flatten(1) @ layer["self_attn.o_proj.weight"].T
        inner = normed(rows, layer["post_attention_layernorm.weight"])
        gate, up = (inner @ layer[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        rows = rows + (functional.silu(gate) * up) @ layer["mlp.down_proj.weight"].T
    return rows


@pytest.mark.parametrize("prefix", ["mlp.mlp.", "mlp."])
def test_a_published_gumiho_head_drafts_by_the_paper_s_formulas(prefix, target, tmp_path):  # noqa: F811
    tensors = gumiho_tensors(prefix)
    head = load_head(gumiho_folder(tmp_path / "head", tensors))
    assert not misfits(head.config, target.config)
    ids, features = torch.tensor([5, 6, 7, 8]), random(3, HIDDEN_SIZE)
    token_ids, probs = chain_of(head, target, ids, features, 2 + NUM_MLPS, KNOWN)

    def read(token_id, feature):
        pair = torch.cat([target.embedding[token_id].float(), feature])
        return tensors["fc.weight"] @ pair + tensors["fc.bias"]

    def check(level, feature):
        expected = (target.output_weight.float() @ feature).softmax(-1)
        assert int(token_ids[level]) == int(expected.argmax())
        assert float(probs[level]) == pytest.approx(float(expected.max()), rel=1e-3)

    rows = [read(token_id, feature) for token_id, feature in zip(ids[1:], features, strict=True)]
    first = layers(tensors, torch.stack(rows))[-1]
    check(0, first)
    rows.append(read(token_ids[0], first))
    second = layers(tensors, torch.stack(rows))[-1]
    check(1, second)
    pair = torch.cat([rows[-1], read(token_ids[1], second)])
    for number in range(NUM_MLPS):
        hidden = silu_block(tensors, f"{prefix}{number}.0", pair)
        for place in (1, 2):
            hidden = hidden + silu_block(tensors, f"{prefix}{number}.{place}", hidden)
        check(2 + number, hidden)


@pytest.mark.parametrize(
    ("tensors", "values", "words"),
    [
        (
            {"mlp.mlp.0.0.res_connection.weight": torch.zeros(2, 2)},
            {},
            "unexpected ['mlps.0.read.res_connection.weight']",
        ),
        ({"layers.2.mlp.gate_proj.weight": torch.zeros(2, 2)}, {}, "has 3 decoder layers, Jakiro runs 2"),
        ({}, {"num_hidden_layers": 3}, "has 3 decoder layers, Jakiro runs 2"),
        (
            {"mlp.mlp.1.3.linear.weight": torch.zeros(2, 2)},
            {},
            "missing ['mlps.0.blocks.2.linear.bias', 'mlps.0.blocks.2.linear.weight', 'mlps.1.blocks.2.linear.bias'",
        ),
    ],
)
def test_a_gumiho_head_of_another_form_is_refused_with_its_values(tensors, values, words, tmp_path):
    with pytest.raises(ValueError, match="head") as refusal:
        load_head(gumiho_folder(tmp_path / "head", gumiho_tensors() | tensors, **values))
    assert words in str(refusal.value)


def test_without_the_lab_s_methods_a_gumiho_head_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"are a Gumiho head, .* --methods-from lab\.published in a checkout; choose"):
        checkpoint.load_head(gumiho_folder(tmp_path / "head", gumiho_tensors()))


def test_the_shipped_head_has_the_hash_of_its_manifest():
    folder = registry.resolve(head="smollm2-135m-instruct-gumiho").head_folder()
    assert load_head(folder).config.kind == "gumiho"
    assert registry.manifest_of(folder)["sha256"] == file_sha256(weights_file(folder))
