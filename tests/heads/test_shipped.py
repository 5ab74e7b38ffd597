"""The heads that ship: small files, the ones that their manifests name, with cards that say how they were made."""

import json

import pytest

from jakiro.heads.card import CARD_NAME
from jakiro.heads.checkpoint import load_head, weights_file
from jakiro.heads.export import MANIFEST_NAME
from jakiro.system import file_sha256
from jakiro.zoo import table as zoo

LARGEST = 9_500_000


@pytest.mark.anywhere
@pytest.mark.parametrize("name", zoo.head_names())
def test_a_shipped_head_is_small_and_the_one_that_its_manifest_names(name):
    folder = zoo.resolve(head=name).head_folder()
    manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    assert weights_file(folder).stat().st_size <= LARGEST
    assert manifest["sha256"] == file_sha256(weights_file(folder))
    config = load_head(folder).config
    assert config.target_sha256 == zoo.ENTRIES[config.target_name].target_sha256
    card = (folder / CARD_NAME).read_text(encoding="utf-8")
    assert "Apache-2.0" in card and "minutes" in card and "τ" in card
