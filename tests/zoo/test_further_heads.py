"""Heads of other kinds are found by their target, read on first use, and one sentence says what is missing."""

import json
from dataclasses import replace

import pytest

from app.serving import pairs
from app.serving.pairs import known_pairs
from jakiro.bench.runner import BenchSettings, loadable
from jakiro.config import SamplingParams
from jakiro.drafting.base import Resources
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.kinds import config_from
from jakiro.methods import DEFAULT, METHODS, PLAIN
from jakiro.zoo import table as zoo
from jakiro.zoo.loading import further_heads
from tests.support import HEADS, head_fields, tiny_head, tiny_target, with_own_head
from tests.support import further_heads as tiny_further_heads

OWN = [DEFAULT, *with_own_head()]
MLPS = METHODS["medusa"]


@pytest.fixture
def assets(tmp_path, monkeypatch):
    """An assets folder with a head of each kind for the default target, in 8 bits, and one of another target."""
    for module in (zoo, pairs):
        monkeypatch.setattr(module, "assets_folder", lambda: tmp_path)
    target = tiny_target()
    for number, method in enumerate(OWN):
        head = tiny_head(target, **head_fields(method))
        head.config = replace(head.config, target_name=zoo.DEFAULT_TARGET)
        save_head(head, tmp_path / "heads" / f"{number}-of-its-own", bits=8)
    save_head(tiny_head(target, **head_fields(MLPS)), tmp_path / "heads" / "0-of-another-target")
    return tmp_path


@pytest.mark.parametrize("method", OWN, ids=lambda method: method.name)
def test_an_unnamed_method_drafts_with_the_head_that_was_given_even_if_the_default_has_one_here(method):
    target = tiny_target()
    further = {DEFAULT.needs.head[0]: lambda: (tiny_head(target), {})}
    resources = Resources(target, tiny_head(target, **head_fields(method)), further=further)
    assert resources.kind_for(METHODS.usual(resources).needs) == resources.head.config.kind


def test_every_method_finds_its_head_among_those_of_its_target(assets):
    found = zoo.heads_of(zoo.DEFAULT_TARGET)
    assert [config.kind for _, config in found.values()] == [method.needs.head[0] for method in OWN]
    target = tiny_target()
    readers = further_heads(zoo.resolve(head="0-of-its-own"), target, "int8")
    generator = JakiroGenerator(Resources(target, further=readers))
    sampling = SamplingParams(1.0, seed=3, max_new_tokens=12)
    expected = generator.run("Why?", sampling, PLAIN.name).token_ids
    for number, method in enumerate(OWN):
        trace = generator.run("Why?", sampling, method.name)
        assert trace.token_ids == expected
        assert trace.header.drafter["name"] == f"{number}-of-its-own" and len(trace.header.drafter["sha256"]) == 64
    assert readers[OWN[0].needs.head[0]]()[0] is readers[OWN[0].needs.head[0]]()[0]


@pytest.mark.parametrize("method", OWN, ids=lambda method: method.name)
def test_a_head_comes_back_from_16_and_8_bits(method, tmp_path):
    head = tiny_head(tiny_target(), draft_vocab_size=90, **head_fields(method))
    for bits in (16, 8):
        save_head(head, tmp_path / str(bits), bits)
        again = load_head(tmp_path / str(bits))
        assert type(again) is type(head) and again.config == head.config
        for name, tensor in head.state_dict().items():
            error = (again.state_dict()[name] - tensor).abs().max()
            assert error <= (1e-3 if bits == 16 else 1e-2) * max(1.0, float(tensor.abs().max())), name


def test_a_method_whose_head_is_missing_says_what_to_do():
    target = tiny_target()
    generator = JakiroGenerator(Resources(target, tiny_head(target, **HEADS["decoupled"])))
    own = [method for method in OWN if method is not DEFAULT]
    assert not {method.name for method in generator.methods} & {method.name for method in own}
    for method in own:
        with pytest.raises(ValueError) as refusal:
            generator.stream("Why?", method=method.name)
        assert str(refusal.value).startswith(
            f"{method.title} needs a draft head of its own, and there is none for tiny: train one with "
            f"`python -m jakiro train --method {method.name}` and give it with --head; choose one of {PLAIN.name}, "
        )
    settings, sentences = loadable(generator, BenchSettings(methods=(PLAIN.name, own[0].name), nodes=(8,)))
    assert settings.methods == (PLAIN.name,) and sentences[0].startswith(f"{own[0].name} takes no part: ")


def test_the_head_that_is_given_comes_before_a_shipped_one_of_its_kind():
    target = tiny_target()
    given = tiny_head(target, **head_fields(MLPS))
    resources = Resources(target, given, {"name": "given"}, tiny_further_heads(target))
    assert resources.head_for(MLPS.needs) == (given, {"name": "given"})
    assert resources.head_for(OWN[1].needs)[1]["name"] == "tiny"


def test_a_config_that_contradicts_itself_is_refused():
    config = tiny_head(tiny_target(), **head_fields(MLPS)).config.to_dict()
    json.dumps(config)
    for field, value, sentence in (
        ("kind", 3, "This draft head is of the kind 3, known are jakiro, dflash, eagle, eagle3"),
        ("num_mlps", 0, "num_mlps must be 1 or more, not 0"),
        ("published_blocks", -1, "published_blocks must be 0 or more, not -1"),
        ("fusion", "decoupled", "unknown fields: fusion"),
        ("feature_layers", [1], "unknown fields: feature_layers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            config_from(config | {field: value})


def test_a_head_of_an_unknown_kind_is_refused_with_those_that_are_known(tmp_path):
    save_head(tiny_head(tiny_target()), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | {"kind": "chain"}))
    sentence = (
        "This draft head is of the kind 'chain', known are jakiro, dflash, eagle, eagle3, parallelspec, gumiho, "
        "medusa; name the module that brings"
    )
    with pytest.raises(ValueError, match=sentence):
        load_head(tmp_path)


def test_only_heads_of_the_default_method_make_a_pair(assets):
    save_head(tiny_head(tiny_target(), num_experts=2), assets / "heads" / "3-another-mixture")
    shipped = {pair.head for pair in known_pairs()} & set(zoo.head_names())
    assert {zoo.config_of(name).kind for name in shipped} == {"jakiro"} and "3-another-mixture" in shipped
