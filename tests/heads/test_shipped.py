"""The heads that ship: small files, the ones that their manifests name, with cards that say how they were made."""

import json

import pytest

from jakiro.heads.card import CARD_NAME
from jakiro.heads.checkpoint import load_head, weights_file
from jakiro.heads.export import MANIFEST_NAME
from jakiro.methods import DEFAULT, METHODS
from jakiro.system import file_sha256
from jakiro.zoo import table as zoo

LARGEST = 9_000_000
# Methods whose heads ship, trained equally long
EQUAL, MINUTES = ("eagle2", "parallelspec", "gumiho", "medusa"), 95


@pytest.mark.anywhere
@pytest.mark.parametrize("name", zoo.head_names())
def test_a_shipped_head_is_small_and_the_one_that_its_manifest_names(name):
    folder = zoo.resolve(head=name).head_folder()
    manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    assert weights_file(folder).stat().st_size <= LARGEST
    assert manifest["sha256"] == file_sha256(weights_file(folder))
    config = load_head(folder).config
    assert config.target_name == zoo.DEFAULT_TARGET
    assert config.target_sha256 == zoo.ENTRIES[zoo.DEFAULT_TARGET].target_sha256
    card = (folder / CARD_NAME).read_text(encoding="utf-8")
    assert "Apache-2.0" in card and "minutes" in card and "τ" in card


@pytest.mark.parametrize("name", EQUAL)
def test_the_other_drafters_heads_had_the_same_text_and_minutes_and_draft_for_their_own_method(name):
    heads = {config.kind: folder for folder, config in zoo.heads_of(zoo.DEFAULT_TARGET).values()}
    folder = heads[METHODS[name].needs.head[0]]
    assert folder.name == f"{zoo.DEFAULT_TARGET}-{name}"
    manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    others = [json.loads((heads[METHODS[other].needs.head[0]] / MANIFEST_NAME).read_text()) for other in EQUAL]
    assert {each["rows_sha256"] for each in others} == {manifest["rows_sha256"]}
    assert {round(each["minutes"]) for each in others} == {MINUTES} != {round(zoo.minutes_of_heads()[zoo.DEFAULT_HEAD])}
    calibrated = load_head(folder).config.calibration
    assert {f"main/1/{kind}{end}" for kind in ("greedy", "sampled", "sampled-0.7") for end in ("", "-kept")} <= set(
        calibrated
    )
    card = (folder / CARD_NAME).read_text(encoding="utf-8")
    assert f"{MINUTES} minutes of one processor" in card and f"{manifest['counts']['tokens']:,}" in card
    assert "fair-play.md" in card and f"`{DEFAULT.name}`" in card
