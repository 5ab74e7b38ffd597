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


def test_a_scenario_takes_the_first_question_for_which_its_rule_holds():
    asked = []

    def second(figures):
        asked.append(figures)
        return len(asked) == 2

    scenario = replace(record.SCENARIOS[0], questions=("One?", "Two?", "Three?"), rule=second, why="{tau:.2f} a step")
    recording = record.record(FakeGenerator(), scenario)
    assert recording["title"] == "Two?" and len(asked) == 2
    assert recording["why"] == f"{Trace.from_dict(recording['traces']['jakiro']).delivered_tau:.2f} a step"
    with pytest.raises(ValueError, match=r"wanted is that both experts.*Measured: “One\?” Figures\("):
        record.record(FakeGenerator(), replace(scenario, rule=lambda figures: False))


def test_the_opening_needs_both_experts_within_three_steps():
    traces = record._race(FakeGenerator(), record.SCENARIOS[0], "Why?")
    plain, drafted = traces["autoregressive"], traces["jakiro"]
    assert record.SCENARIOS[0].rule(figures_of(plain, drafted))
    late = Trace.from_dict(drafted.to_dict())
    for step in late.steps[: record.OPENING_STEPS]:
        for i in step.accepted_path:
            object.__setattr__(step.nodes[i], "proposer", "expert_0")
    assert not record.SCENARIOS[0].rule(figures_of(plain, late))


@pytest.mark.parametrize("scenario", record.SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_shipped_recording_shows_what_it_is_there_for(scenario):
    recording = json.loads(web.recording(scenario.name))
    plain, drafted = (Trace.from_dict(recording["traces"][method]) for method in ("autoregressive", "jakiro"))
    figures = figures_of(plain, drafted)
    assert scenario.rule(figures), figures
    assert plain.token_ids == drafted.token_ids
    assert recording["title"] == drafted.header.messages[-1]["content"]
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
