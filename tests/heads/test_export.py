"""Heads as folders for the Hub."""

import json

import pytest
import torch

from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.export import export_head
from jakiro.system import file_sha256
from tests.support import HEADS, tiny_head, tiny_target


@pytest.fixture(scope="module")
def target():
    return tiny_target()


def saved(target, folder, **head):
    save_head(tiny_head(target, **head), folder / "head")
    return folder / "head"


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
