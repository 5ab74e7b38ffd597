"""Every list of methods comes from `jakiro.drafters.registry`: new methods need no change to the page's code."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.devices.local import answer_events
from app.page import api, benchmark, build, web
from app.page.offered import offered_methods, trained_methods
from app.tools.screenshots import NoModel
from app.words import benchmark as benchmark_words
from jakiro.config import SamplingParams
from jakiro.drafters import prompt_lookup
from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN
from jakiro.loading import registry
from tests.app.fake import FakeGenerator
from tests.app.page.test_asking import asking


def test_the_browser_gets_every_method_as_data():
    sent = json.loads(web.script().splitlines()[0].removeprefix("window.Jakiro = ").removesuffix(";"))
    assert [method["name"] for method in sent["methods"]] == list(METHODS)
    assert all(METHODS[method_data["name"]].to_dict().items() >= method_data.items() for method_data in sent["methods"])
    assert next(iter(METHODS.values())) is PLAIN


@pytest.fixture
def with_mirror():
    """Return the package's methods and an external one without a head."""
    mirror = replace(
        prompt_lookup.METHOD,
        name="mirror",
        title="Mirror",
        sentence="Repeats the text.",
        aliases=("echo",),
        proposers=(Proposer("mirror", "Mirrored", "The text so far."),),
        needs=Needs(),
    )
    return METHODS.with_further([mirror])


def choices(blocks, elem_id: str) -> list[tuple[str, str]]:
    return next(block.choices for block in blocks.blocks.values() if getattr(block, "elem_id", None) == elem_id)


def test_a_new_method_is_offered_in_the_settings_and_in_the_benchmark(with_mirror):
    blocks = build.build(NoModel(), methods=with_mirror)
    drafting = [(method.title, method.name) for method in offered_methods(with_mirror)]
    assert choices(blocks, "method") == drafting
    assert choices(blocks, "further-lanes") == drafting and ("Mirror", "mirror") in drafting
    assert '"mirror"' in web.script(with_mirror) and '"mirror"' in benchmark.script(with_mirror)


def test_a_method_with_a_head_of_its_own_is_offered_once_there_is_one(monkeypatch):
    def offered(*kinds):
        heads = {kind: (Path(kind), SimpleNamespace(kind=kind)) for kind in kinds}
        monkeypatch.setattr(registry, "heads_of", lambda target: heads)
        return [method.name for method in offered_methods()]

    with_own_head = [method for method in METHODS.values() if method.trains is not None and method is not DEFAULT]
    assert not {method.name for method in with_own_head} & set(offered("jakiro"))
    kinds = (kind for method in METHODS.values() for kind in method.needs.head[:1])
    assert offered(*kinds) == [*METHODS][1:]
    assert offered() == [name for name, method in METHODS.items() if method is not PLAIN and not method.needs.head]


def test_people_read_how_long_a_method_s_own_head_was_trained(tmp_path, monkeypatch):
    mixture = {"default": (tmp_path / "untold", SimpleNamespace(kind="jakiro"))}
    heads = mixture | {"dense": (tmp_path, SimpleNamespace(kind="eagle"))}
    monkeypatch.setattr(registry, "heads_of", lambda target: heads)
    monkeypatch.setattr(registry, "minutes_of_heads", lambda: {"dense": 20.04})
    # Without heads of unknown training minutes and methods that use the head of another method
    assert trained_methods() == {"eagle2": 20.04}
    assert '"minutes":{"eagle2":20.04}' in benchmark.script() and '"eagle2":"EAGLE-2"' in benchmark.script()


def test_a_new_method_is_asked_for_by_name_and_refusals_name_it(with_mirror):
    assert asking(further_lanes=["mirror"], methods=with_mirror).methods == (PLAIN.name, DEFAULT.name, "mirror")
    assert api._methods(["mirror", PLAIN.name], with_mirror) == ("mirror", PLAIN.name)
    with pytest.raises(ValueError, match="mirror"):
        api._methods(["magic"], with_mirror)
    with pytest.raises(ValueError, match=r"one of .*mirror; got 'magic'"):
        asking(method="magic", methods=with_mirror)
    settings, _ = benchmark.read_request({"methods": ["mirror"]}, methods=with_mirror)
    assert settings.methods == (PLAIN.name, "mirror")
    with pytest.raises(ValueError, match="mirror") as refusal:
        benchmark.read_request({"methods": ["magic"]}, methods=with_mirror)
    names = ", ".join(method.name for method in offered_methods(with_mirror))
    assert str(refusal.value) == benchmark_words.UNKNOWN_METHOD.format(known=names, value="'magic'")


def test_the_form_s_default_means_the_usual_method_of_the_loaded_head(monkeypatch):
    monkeypatch.setattr(FakeGenerator, "usual", METHODS["eagle3"])
    request = replace(asking(), params=SamplingParams(max_new_tokens=4))
    assert request.methods == (PLAIN.name, DEFAULT.name)
    assert ran(FakeGenerator(), request) == [PLAIN.name, "eagle3"]
    assert ran(FakeGenerator(), replace(request, methods=("eagle3", DEFAULT.name))) == ["eagle3"]


def ran(generator, request) -> list[str]:
    return [method for kind, method, _ in answer_events(generator, request, lambda: False) if kind == "header"]
