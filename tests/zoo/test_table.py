"""Names to pairs: the embedded default, folders, Hub ids, and one clear sentence where a name is unknown."""

import json

import pytest
import torch
from safetensors.torch import save_file

from jakiro.config import SamplingParams
from jakiro.zoo import table as zoo


@pytest.fixture
def heads(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "assets_folder", lambda: tmp_path / "assets")

    def add(name, **config):
        folder = tmp_path / "assets" / "heads" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"kind": "jakiro"} | config))
        save_file({"weight": torch.zeros(1)}, folder / "model.safetensors")
        return folder

    return add


def test_the_default_pair_is_the_embedded_target(heads):
    assert zoo.resolve().head_path is None
    folder = heads(zoo.DEFAULT_HEAD, target_name=zoo.DEFAULT_TARGET)
    pair = zoo.resolve()
    assert (pair.target_name, pair.head_name, pair.head_path) == (zoo.DEFAULT_TARGET, zoo.DEFAULT_HEAD, folder)
    assert zoo.resolve(head="none").head_path is None


def test_a_target_folder_finds_the_shipped_head_that_names_it(heads, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    assert zoo.resolve(str(mine)).head_name is None
    heads("other", target_name="other/model")
    folder = heads("fitting", target_name=str(mine))
    assert zoo.resolve(str(mine)).head_path == folder


def test_an_unknown_target_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match=f"Unknown target model “gpt-0”.*{zoo.DEFAULT_TARGET}, "):
        zoo.resolve("gpt-0")


def test_an_unknown_head_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match=r"Unknown draft head “nobody”.*Hhaiduo/Jakiro-Vicuna-7B-v1.3"):
        zoo.resolve(head="nobody")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with runs/head and runs/old; nothing may be asked of the Hub."""
    monkeypatch.chdir(tmp_path)
    for name in ("head", "old"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    monkeypatch.setattr(zoo, "fetch_head", lambda hub_id: pytest.fail("the Hub was asked"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runs/hed", "There is no folder runs/hed with a {what}; runs holds head, old."),
        ("./runs/hed", "There is no folder ./runs/hed with a {what}; runs holds head, old."),
        ("./hed", "There is no folder ./hed with a {what}; . holds runs."),
        ("../nowhere/hed", "There is no folder ../nowhere/hed with a {what}; correct the path."),
        ("~/no/such", "There is no folder ~/no/such with a {what}; correct the path."),
        ("/no/such", "There is no folder /no/such with a {what}; correct the path."),
        ("runs/more/hed", "There is no folder runs/more/hed with a {what}; correct the path."),
        ("runs/hed.bin", "The {what} runs/hed.bin is a file; give the folder that holds config.json and weights."),
    ],
)
def test_what_looks_like_a_path_is_not_looked_for_on_the_hub(name, words, here):
    if name.endswith(".bin"):
        open(name, "w").close()
    for call, what in ((lambda: zoo.resolve(head=name), "draft head"), (lambda: zoo.resolve(name), "target model")):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == words.format(what=what)


def test_names_of_the_table_are_no_paths_beside_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "Hhaiduo").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoo, "fetch_head", lambda hub_id: tmp_path / hub_id)
    head = "Hhaiduo/Jakiro-Vicuna-7B-v1.3"
    assert zoo.resolve(head=head).head_path == tmp_path / head


def test_a_head_for_other_weights_gets_a_notice():
    assert zoo.head_warning("h", "a" * 64, "t", "a" * 64) is None
    assert zoo.head_warning("h", "", "t", "a" * 64) is None
    assert zoo.head_warning("h", "a" * 64, "t", None) is None
    warning = zoo.head_warning("h", "a" * 64, "t", "b" * 64)
    assert "a" * 12 in warning and "b" * 12 in warning


def test_heads_that_were_not_trained_equally_long_are_named_with_their_minutes(heads):
    for name, minutes in (("long", 203.0), ("short", 20.0), ("as short", 20.04), ("untold", None)):
        folder = heads(name, target_name=zoo.DEFAULT_TARGET)
        (folder / "manifest.json").write_text(json.dumps({} if minutes is None else {"minutes": minutes}))
    assert zoo.minutes_of_heads() == {"long": 203.0, "short": 20.0, "as short": 20.04}
    found = zoo.unequal_training({"Plain": None, "A": "long", "B": "short", "C": "untold", "D": "unknown"})
    assert found.startswith(
        "The heads were not trained equally long (A 203 min, B 20 min) or on the same text, so this does not say which "
    )
    for equal in ({"A": "long", "B": "long", "C": "untold", "Plain": None}, {"B": "short", "E": "as short"}):
        assert zoo.unequal_training(equal) is None


def test_the_makers_settings_of_a_known_file_stand_in_its_row():
    name, entry = next((name, entry) for name, entry in zoo.ENTRIES.items() if entry.makers_settings)
    for target in (name, f"folder/{entry.file.name}"):
        asked = SamplingParams().with_makers(zoo.makers_settings_of(target))
        assert asked == SamplingParams(0.7, 0.8, 20, repetition_penalty=1.1)
    assert zoo.makers_settings_of(zoo.DEFAULT_TARGET) == zoo.makers_settings_of("some/model") == {}
