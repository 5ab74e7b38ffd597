"""Pairs by name: the embedded default, folders, Hub ids, and one clear sentence for unknown names."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from app.serving import pairs
from app.serving.pairs import known_pairs
from jakiro.config import SamplingParams
from jakiro.drafters.base import Resources, why_not
from jakiro.drafters.eagle2 import METHOD as EAGLE2
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import save_head
from jakiro.heads.eagle import EAGLE
from jakiro.loading import registry
from jakiro.loading.loader import further_heads
from tests.support import HEADS, head_fields, save_target, tiny_head, tiny_target, with_own_head


@pytest.fixture
def heads(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "assets_folder", lambda: tmp_path / "assets")

    def add(name, **config):
        folder = tmp_path / "assets" / "heads" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"kind": "jakiro"} | config))
        save_file({"weight": torch.zeros(1)}, folder / "model.safetensors")
        return folder

    return add


def test_the_default_pair_is_the_embedded_target(heads):
    assert registry.resolve().head_path is None
    folder = heads(registry.DEFAULT_HEAD, target_name=registry.DEFAULT_TARGET)
    pair = registry.resolve()
    assert (pair.target_name, pair.head_name, pair.head_path) == (
        registry.DEFAULT_TARGET,
        registry.DEFAULT_HEAD,
        folder,
    )
    assert registry.resolve(head="none").head_path is None


def test_a_target_folder_finds_the_shipped_head_that_names_it(heads, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    assert registry.resolve(str(mine)).head_name is None
    heads("other", target_name="other/model")
    folder = heads("fitting", target_name=str(mine))
    assert registry.resolve(str(mine)).head_path == folder


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """Enter a folder with runs/head and runs/old, and let requests to the Hub fail."""
    monkeypatch.chdir(tmp_path)
    for name in ("head", "old"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    monkeypatch.setattr(registry, "fetch_head", lambda hub_id: pytest.fail("a request was sent to the Hub"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runs/hed", "There is no folder runs/hed with a {kind}; did you mean runs/head?"),
        ("rnus/head", "There is no folder rnus/head with a {kind}; did you mean runs/head?"),
        ("rums/od/", "There is no folder rums/od/ with a {kind}; did you mean runs/old?"),
        (
            "runs/xyz",
            "There is no folder runs/xyz with a {kind}; the nearest existing folder is runs, it holds head, old.",
        ),
        (
            "./zzz/yyy",
            "There is no folder ./zzz/yyy with a {kind}; the nearest existing folder is the current folder, it holds "
            "runs.",
        ),
        ("runs/hed.bin", "The {kind} runs/hed.bin is a file; give the folder that holds config.json and weights."),
    ],
)
def test_mistyped_path_is_not_requested_from_the_hub(name, words, working_folder):
    if name.endswith(".bin"):
        open(name, "w").close()
    for call, kind in (
        (lambda: registry.resolve(head=name), "draft head"),
        (lambda: registry.resolve(name), "target model"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == words.format(kind=kind)


@pytest.mark.parametrize("name", ["rnus/model", "someone/model", "Runs-org/model-7b"])
def test_hub_id_unlike_any_folder_is_requested_from_the_hub(name, working_folder):
    assert registry.resolve(name, "none").target_path_or_hub_id == name


def test_a_tilde_is_expanded_for_targets_and_heads(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save_head(tiny_head(tiny_target()), tmp_path / "head")
    save_target(tmp_path / "models" / "foo")
    pair = registry.resolve("~/models/foo", "~/head")
    assert pair.target_path_or_hub_id == str((tmp_path / "models" / "foo").resolve())
    assert pair.head_path == (tmp_path / "head").resolve()
    with pytest.raises(ValueError, match=r"There is no folder .*/models/fo with a target model; did you mean .*/foo\?"):
        registry.resolve("~/models/fo")


def test_head_for_other_weights_has_a_warning():
    assert registry.head_warning("h", "a" * 64, "t", "a" * 64) is None
    assert registry.head_warning("h", "", "t", "a" * 64) is None
    assert registry.head_warning("h", "a" * 64, "t", None) is None
    warning = registry.head_warning("h", "a" * 64, "t", "b" * 64)
    assert "a" * 12 in warning and "b" * 12 in warning


def test_heads_with_unequal_training_times_are_named_with_their_minutes(heads):
    for name, minutes in (("long", 203.0), ("short", 20.0), ("as short", 20.04), ("untold", None)):
        folder = heads(name, target_name=registry.DEFAULT_TARGET)
        (folder / "manifest.json").write_text(json.dumps({} if minutes is None else {"minutes": minutes}))
    assert registry.minutes_of_heads() == {"long": 203.0, "short": 20.0, "as short": 20.04}
    message = registry.unequal_training({"Plain": None, "A": "long", "B": "short", "C": "untold", "D": "unknown"})
    assert message.startswith(
        "The heads were not trained equally long (A 203 min, B 20 min) or on the same text, so this does not show "
    )
    for equal in ({"A": "long", "B": "long", "C": "untold", "Plain": None}, {"B": "short", "E": "as short"}):
        assert registry.unequal_training(equal) is None


def test_recommended_settings_of_a_known_file_are_registered():
    name, entry = next((name, entry) for name, entry in registry.ENTRIES.items() if entry.sampling)
    for target in (name, f"folder/{entry.file.name}"):
        sampling = SamplingParams().with_makers(registry.recommended_sampling_of(target))
        assert sampling == SamplingParams(0.7, 0.8, 20, repetition_penalty=1.1)
    assert (
        registry.recommended_sampling_of(registry.DEFAULT_TARGET)
        == registry.recommended_sampling_of("some/model")
        == {}
    )


OWN = [DEFAULT, *with_own_head()]
MLPS = METHODS["medusa"]


@pytest.fixture
def assets(tmp_path, monkeypatch):
    """Return an assets folder with an 8-bit head of each kind for the default target, and a head for another target."""
    for module in (registry, pairs):
        monkeypatch.setattr(module, "assets_folder", lambda: tmp_path)
    target = tiny_target()
    for number, method in enumerate(OWN):
        head = tiny_head(target, **head_fields(method))
        head.config = replace(head.config, target_name=registry.DEFAULT_TARGET)
        save_head(head, tmp_path / "heads" / f"{number}-of-its-own", bits=8)
    save_head(tiny_head(target, **head_fields(MLPS)), tmp_path / "heads" / "0-of-another-target")
    return tmp_path


@pytest.mark.parametrize("method", OWN, ids=lambda method: method.name)
def test_usual_method_uses_the_loaded_head_even_if_the_default_method_has_one(method):
    target = tiny_target()
    readers = {DEFAULT.needs.head[0]: lambda: (tiny_head(target), {})}
    resources = Resources(target, tiny_head(target, **head_fields(method)), further=readers)
    assert resources.kind_for(METHODS.usual(resources).needs) == resources.head.config.kind


def test_every_method_finds_its_head_among_those_of_its_target(assets):
    entries = registry.heads_of(registry.DEFAULT_TARGET)
    assert [config.kind for _, config in entries.values()] == [method.needs.head[0] for method in OWN]
    target = tiny_target()
    readers = further_heads(registry.resolve(head="0-of-its-own"), target, "int8")
    generator = JakiroGenerator(Resources(target, further=readers))
    sampling = SamplingParams(1.0, seed=3, max_new_tokens=12)
    expected = generator.run("Why?", sampling, PLAIN.name).token_ids
    for number, method in enumerate(OWN):
        trace = generator.run("Why?", sampling, method.name)
        assert trace.token_ids == expected
        assert trace.header.drafter["name"] == f"{number}-of-its-own" and len(trace.header.drafter["sha256"]) == 64
    assert readers[OWN[0].needs.head[0]]()[0] is readers[OWN[0].needs.head[0]]()[0]


def test_method_without_its_head_names_the_remedy():
    target = tiny_target()
    generator = JakiroGenerator(Resources(target, tiny_head(target, **HEADS["decoupled"])))
    methods = [method for method in OWN if method is not DEFAULT]
    assert not {method.name for method in generator.methods} & {method.name for method in methods}
    for method in methods:
        with pytest.raises(ValueError) as refusal:
            generator.stream("Why?", method=method.name)
        assert str(refusal.value).startswith(
            f"{method.title} needs a draft head of its own, and there is none for tiny: train one with "
            f"`python -m jakiro train --method {method.name}` and give it with --head; choose one of {PLAIN.name}, "
        )


def test_method_whose_heads_cannot_be_trained_asks_for_one():
    target = tiny_target()
    method = replace(EAGLE2, kind=replace(EAGLE, start=None))
    assert EAGLE2.is_trainable and not method.is_trainable
    sentence = why_not(method, Resources(target, tiny_head(target)))
    assert sentence == f"{method.title} needs a draft head of its own, and there is none for tiny: give one with --head"


def test_only_heads_of_the_default_method_make_a_pair(assets):
    save_head(tiny_head(tiny_target(), num_experts=2), assets / "heads" / "3-another-mixture")
    shipped = {pair.head for pair in known_pairs()} & set(registry.head_names())
    assert {registry.config_of(name).kind for name in shipped} == {"jakiro"} and "3-another-mixture" in shipped
