"""Export of heads to folders for the Hub."""

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


@pytest.mark.anywhere
@pytest.mark.parametrize("head", HEADS)
def test_hub_folder_contains_the_head_a_card_and_a_manifest_of_its_weights(target, head, tmp_path):
    folder, hub = tmp_path / "head", tmp_path / "hub"
    save_head(tiny_head(target, **HEADS[head]), folder)
    (folder / "manifest.json").write_text(json.dumps({"minutes": 20.0, "sha256": "of other weights"}))
    files = export_head(folder, hub, "hub")
    assert sorted(path.name for path in files) == ["README.md", "config.json", "head.safetensors", "manifest.json"]
    before, after = load_head(folder), load_head(hub)
    assert before.config == after.config
    assert all(torch.equal(tensor, after.state_dict()[name]) for name, tensor in before.state_dict().items())
    card = (hub / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: jakiro\n") and "inner width 64" in card
    sha256 = file_sha256(hub / "head.safetensors")
    assert json.loads((hub / "manifest.json").read_text()) == {"minutes": 20.0, "sha256": sha256}
