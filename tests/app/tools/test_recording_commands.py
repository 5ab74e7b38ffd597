"""The commands that make what ships: they keep only recordings that show what they claim, and say which do not."""

import json
from dataclasses import asdict, replace

import pytest

from app.page import web
from app.tools import record, record_lesson, replay
from app.tools.figures import figures_of
from jakiro.engine.costs import DeviceProfile
from jakiro.trace import Trace
from tests.app.fake import FakeGenerator

LARGEST_HANDOUT = 2_000_000  # bytes


class Recordable(FakeGenerator):
    """A fake generator with the parts that the lesson's recordings are stamped with."""

    target = type("Target", (), {"device": "cpu"})
    profile = DeviceProfile(((1, 30.0), (64, 99.0)), ((1, 4.0), (8, 32.0)), {"device": "Test device", "threads": 2})


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(record_lesson, "_profile", lambda generator: {"verify_ms": [[1, 30.0]], "draft_ms": [[1, 2.0]]})
    monkeypatch.setattr(record_lesson, "_weight_bytes", lambda target: 1000)
    monkeypatch.setattr(record_lesson, "_memory_speed", lambda device: 1e9)


def test_the_lesson_is_recorded_from_any_generator_as_an_answers_events(measured):
    content = record_lesson.record(Recordable(), Recordable())
    kinds = {f"seed-{seed}-{kind}" for seed in (1, 2) for kind in ("shared", "own")}
    assert set(content["recordings"]) == {"greedy", "small", "shallow", "family", *kinds}
    assert content["device"]["profile"]["verify_ms"][0] == [1, 30.0]
    by_lane = {(kind, method) for kind, method, _ in content["recordings"]["greedy"]}
    assert by_lane == {(kind, method) for kind in ("header", "step", "end") for method in ("autoregressive", "jakiro")}


SPEEDUPS = {"overall": 1.3, "coding": 1.8, "summary": 1.2, "explanation": 1.1}
OPENING = record.scenarios(SPEEDUPS)[0]


@pytest.fixture(scope="module")
def traces():
    return record._race(FakeGenerator(), OPENING, "Why?")


def with_plain_time(traces, speedup: float) -> list[Trace]:
    """The same two traces, plain decoding taking as long as it must for this speedup."""
    plain, drafted = (Trace.from_dict(traces[method].to_dict()) for method in ("autoregressive", "jakiro"))
    factor = speedup * drafted.decode_seconds / plain.decode_seconds
    for step in plain.steps:
        for name in ("draft_ms", "verify_ms", "other_ms"):
            object.__setattr__(step, name, factor * getattr(step, name))
    return [plain, drafted]


def test_a_scenario_takes_the_first_question_for_which_its_rule_holds():
    asked = []

    def second(figures):
        asked.append(figures)
        return len(asked) == 2

    scenario = replace(OPENING, questions=("One?", "Two?", "Three?"), rule=second, why="{tau:.2f} a step")
    recording = record.record(FakeGenerator(), scenario)
    assert recording["title"] == "Two?" and len(asked) == 2
    assert recording["why"] == f"{Trace.from_dict(recording['traces']['jakiro']).delivered_tau:.2f} a step"
    with pytest.raises(ValueError, match=r"wanted is a whole answer, and that both experts.*“One\?” Figures\("):
        record.record(FakeGenerator(), replace(scenario, rule=lambda figures: False))


@pytest.mark.parametrize(("speedup", "fits"), [(1.31, True), (1.29, False)])
def test_the_opening_is_at_least_as_fast_as_the_benchmark(traces, speedup, fits):
    assert OPENING.rule(figures_of(*with_plain_time(traces, speedup))) == fits


SHIPPED = record.scenarios(record.benchmark_speedups())


@pytest.mark.parametrize("scenario", SHIPPED, ids=lambda scenario: scenario.name)
def test_every_shipped_recording_shows_what_it_is_there_for(scenario):
    recording = json.loads(web.recording(scenario.name))
    plain, drafted = (Trace.from_dict(recording["traces"][method]) for method in ("autoregressive", "jakiro"))
    figures = figures_of(plain, drafted)
    assert figures.whole and scenario.rule(figures), figures
    assert plain.token_ids == drafted.token_ids
    assert recording["title"] == drafted.header.messages[-1]["content"] in scenario.questions
    assert recording["why"] == scenario.why.format(**asdict(figures))
    assert scenario.head is None or drafted.header.drafter["name"] == scenario.head


@pytest.fixture
def handouts(monkeypatch, tmp_path):
    """The folder into which the command has written."""
    monkeypatch.setattr("sys.argv", ["replay", "--out", str(tmp_path / "handouts")])
    replay.main()
    return tmp_path / "handouts"


def test_the_command_makes_a_handout_of_every_shipped_recording(handouts):
    assert sorted(path.stem for path in handouts.iterdir()) == web.recording_names()
    for path in handouts.iterdir():
        assert path.stat().st_size < LARGEST_HANDOUT


@pytest.mark.browser
def test_a_handout_is_what_the_recordings_tab_saves_and_opens_from_disk(open_tab, fake_address, handouts):
    tab = open_tab(fake_address, color_scheme="light")
    tab.wait_for_selector(".jk-view[data-tab=watch]")
    tab.click('[data-tab="recordings"]')
    tab.wait_for_selector("[data-action=handout]")
    name = web.recording_names()[1]
    with tab.expect_download() as saved:
        tab.locator("[data-action=handout]").nth(1).click()
    path = handouts / f"{name}.html"
    assert saved.value.path().read_bytes() == path.read_bytes()
    assert saved.value.suggested_filename.endswith(".html")
    handout = open_tab(path.as_uri())
    handout.wait_for_selector("svg.tree")
    shown = handout.evaluate("document.querySelector('.answer-text').textContent")
    assert shown == Trace.from_dict(json.loads(web.recording(name))["traces"]["jakiro"]).text


@pytest.mark.browser
def test_a_title_is_text_in_handouts_made_by_either_side(open_tab, fake_address):
    tab = open_tab(fake_address, color_scheme="light")
    tab.wait_for_selector(".jk-view[data-tab=watch]")
    text = web.recording(web.recording_names()[0])
    title = "A <title> & more</title><script>"
    made = tab.evaluate("([text, title]) => Jakiro.asReplay(text, title)", [text, title])
    assert made == replay.replay_page(text, title)
