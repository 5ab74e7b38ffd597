"""Heads in other people's form: there and back, and a plain word where the form cannot hold them."""

import json

import pytest
import torch
from safetensors.torch import load_file

from jakiro.config import SamplingParams
from jakiro.drafting.base import Resources
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.export import export_head
from jakiro.system import file_sha256
from tests.support import HEADS, TREE, tiny_head, tiny_target


@pytest.fixture(scope="module")
def target():
    return tiny_target()


def saved(target, folder, **head):
    save_head(tiny_head(target, **head), folder / "head")
    return folder / "head"


def test_a_one_expert_head_comes_back_from_eagles_form_as_it_was(target, tmp_path):
    folder = saved(target, tmp_path, num_experts=1)
    files = export_head(folder, tmp_path / "eagle", "eagle")
    assert [path.name for path in files] == ["config.json", "model.safetensors"]
    before, after = load_head(folder), load_head(tmp_path / "eagle")
    assert after.config.num_experts == 1 and after.config.rope_parameters == before.config.rope_parameters
    for name, tensor in before.state_dict().items():
        if not name.endswith("gate.weight"):
            assert torch.equal(tensor, after.state_dict()[name]), name
    trees = [
        [step.nodes for step in JakiroGenerator(Resources(target, head)).run("Hello", few, tree=TREE).steps]
        for few in [SamplingParams(max_new_tokens=8)]
        for head in (bound(before, target), bound(after, target))
    ]
    assert trees[0] == trees[1]


def bound(head, target):
    return head.bind(target.embedding, target.output_weight)


def test_eagles_form_has_eagles_names_and_config(target, tmp_path):
    export_head(saved(target, tmp_path, num_experts=1), tmp_path / "eagle", "eagle")
    tensors = load_file(tmp_path / "eagle" / "model.safetensors")
    attention = {f"layers.0.self_attn.{name}_proj.weight" for name in "qkvo"}
    mlp = {f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    assert set(tensors) == attention | mlp | {"fc.weight", "fc.bias", "layers.0.post_attention_layernorm.weight"}
    config = json.loads((tmp_path / "eagle" / "config.json").read_text())
    assert config["model_type"] == "llama" and config["num_hidden_layers"] == 1 and config["bias"] is True
    assert config["rope_scaling"] is None and config["rope_theta"] == 10000.0


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("summed", "Jakiro, summed fusion, 2 experts of inner width 64: EAGLE's format holds one dense layer alone"),
        ("decoupled", "Jakiro, decoupled fusion, 2 experts .*, and no server reads others yet"),
        ("one expert, reduced", "scores 90 of the target's 260 tokens"),
        (
            "mask tokens",
            "one dense layer of inner width 64 with 2 mask tokens, as ParallelSpec's: EAGLE's format",
        ),
    ],
)
def test_what_eagles_form_cannot_hold_is_said_and_nothing_is_written(target, head, words, tmp_path):
    others = {
        "one expert, reduced": {"kind": "eagle", "draft_vocab_size": 90},
        "mask tokens": {"kind": "parallelspec", "num_masks": 2},
    }
    values = HEADS.get(head) or others[head]
    with pytest.raises(ValueError, match=words):
        export_head(saved(target, tmp_path, **values), tmp_path / "out", "eagle")
    assert not (tmp_path / "out").exists()


@pytest.mark.anywhere
@pytest.mark.parametrize("head", HEADS)
def test_a_hub_folder_holds_the_head_and_a_card(target, head, tmp_path):
    folder = saved(target, tmp_path, **HEADS[head])
    files = export_head(folder, tmp_path / "hub", "hub")
    assert sorted(path.name for path in files) == ["README.md", "config.json", "head.safetensors"]
    before, after = load_head(folder), load_head(tmp_path / "hub")
    assert before.config == after.config
    assert all(torch.equal(tensor, after.state_dict()[name]) for name, tensor in before.state_dict().items())
    card = (tmp_path / "hub" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: jakiro\n") and "inner width 64" in card


def test_an_exported_manifest_names_the_exported_weights(target, tmp_path):
    folder = saved(target, tmp_path)
    (folder / "manifest.json").write_text(json.dumps({"minutes": 20.0, "sha256": "of other weights"}))
    files = export_head(folder, tmp_path / "small", "int8")
    sha256 = file_sha256(tmp_path / "small" / "head.safetensors")
    assert json.loads(files[-1].read_text()) == {"minutes": 20.0, "sha256": sha256}
