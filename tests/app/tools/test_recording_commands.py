"""The commands that make what ships: they keep only recordings that show what they claim, and say which do not."""

import json
from dataclasses import replace

import pytest

from app.page import lesson, web
from app.tools import lesson_rules, record, record_lesson, replay
from jakiro.engine.costs import DeviceProfile
from jakiro.trace import Trace
from tests.app.fake import FakeGenerator


class Recordable(FakeGenerator):
    """A fake generator with the parts that the lesson's recordings are stamped with."""

    target = type("Target", (), {"device": "cpu"})
    profile = DeviceProfile(((1, 30.0), (64, 99.0)), ((1, 4.0), (8, 32.0)), 8, {"device": "Test device", "threads": 2})


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(record_lesson, "_profile", lambda generator: generator.profile)
    monkeypatch.setattr(record_lesson, "_weight_bytes", lambda target: 1000)
    monkeypatch.setattr(record_lesson, "_memory_speed", lambda device: 1e9)


def test_any_generator_can_be_recorded(measured, monkeypatch):
    monkeypatch.setattr(lesson_rules, "unmet", lambda recordings: [])
    content = record_lesson.record(Recordable())
    kinds = {f"seed-{seed}-{kind}" for seed in (1, 2) for kind in ("shared", "own")}
    assert set(content["recordings"]) == {"greedy", "small", "shallow", *kinds}
    assert content["device"]["profile"]["verify_ms"][0] == [1, 30.0]


def test_a_question_that_leaves_a_stop_empty_gives_way_to_the_next(measured, monkeypatch):
    asked = []

    def unmet(recordings):
        asked.append(recordings["greedy"]["jakiro"]["header"]["messages"][0]["content"])
        return ["Stop 4 needs something."] if len(asked) == 1 else []

    monkeypatch.setattr(lesson_rules, "unmet", unmet)
    record_lesson.record(Recordable())
    assert asked == list(record_lesson.QUESTIONS[:2])


def test_a_pair_that_cannot_fill_the_stops_is_told_which(measured):
    # The fake draft has no noise to share and no parts of experts, so dice change nothing and nothing can be mixed
    with pytest.raises(ValueError, match=r"The lesson could not be recorded.*Stop 3 needs.*Stop 8 needs"):
        record_lesson.record(Recordable())


def shipped() -> dict:
    return json.loads(lesson.RECORDINGS.read_text(encoding="utf-8"))["recordings"]


def spoil(recordings: dict, name: str, **columns) -> None:
    for step in recordings[name]["jakiro"]["steps"]:
        step.update({key: value(step) for key, value in columns.items()})


@pytest.mark.parametrize(
    ("stop", "name", "columns"),
    [
        (2, "greedy", {"path": lambda step: []}),
        (3, "greedy", {"e": lambda step: [None] * len(step["p"])}),
        (4, "shallow", {"e": lambda step: [[0.5, 0.5]] * len(step["p"])}),
        (5, "greedy", {"path": lambda step: []}),
        (6, "greedy", {"p": lambda step: list(range(-1, len(step["p"]) - 1))}),
        (7, "greedy", {"path": lambda step: [], "n": lambda step: 1}),
        (8, "seed-2-shared", {"path": lambda step: []}),
    ],
)
def test_a_stop_without_anything_to_show_is_named(stop, name, columns):
    recordings = shipped()
    spoil(recordings, name, **columns)
    assert any(sentence.startswith(f"Stop {stop} ") for sentence in lesson_rules.unmet(recordings))


def test_a_recording_that_does_not_show_what_it_is_there_for_is_refused():
    plan = record.PLANS[0]
    assert record.record(FakeGenerator(), replace(plan, shows=record.any_step))["title"] == plan.title
    with pytest.raises(ValueError, match=f"“{plan.title}” was not recorded: with this pair it does not show"):
        record.record(FakeGenerator(), replace(plan, shows=lambda trace: False))


@pytest.mark.parametrize("plan", record.PLANS, ids=lambda plan: plan.name)
def test_every_shipped_recording_shows_what_it_is_there_for(plan):
    traces = json.loads(web.recording(plan.name))["traces"]
    plain, drafted = (Trace.from_dict(traces[method]) for method in ("autoregressive", "jakiro"))
    assert plan.shows(drafted)
    assert plain.token_ids == drafted.token_ids
    assert plan.head is None or drafted.header.drafter["name"] == plan.head


def test_handouts_are_named_by_shipped_recordings():
    assert len(replay.HANDOUTS) >= 2
    assert set(replay.HANDOUTS) <= set(web.recording_names())
    for name in replay.HANDOUTS:
        assert (replay.FOLDER / f"{name.partition('-')[2]}.html").is_file()


@pytest.mark.browser
def test_a_handout_is_the_page_that_save_makes_and_opens_from_disk(open_tab, fake_address, tmp_path):
    text = web.recording(replay.HANDOUTS[1]).strip()
    page = replay.replay_page(text, "A <title> & more")
    tab = open_tab(fake_address)
    tab.wait_for_selector(".jk-view[data-tab=watch]")
    assert tab.evaluate("([text, title]) => Jakiro.asReplay(text, title)", [text, "A <title> & more"]) == page
    path = tmp_path / "handout.html"
    path.write_text(page, encoding="utf-8")
    handout = open_tab(path.as_uri())
    handout.wait_for_selector("svg.tree")
    shown = handout.evaluate("document.querySelector('.answer-text').textContent")
    assert shown == Trace.from_dict(json.loads(text)["traces"]["jakiro"]).text


def test_the_handouts_are_what_the_present_recordings_and_scripts_give(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["replay", "--out", str(tmp_path)])
    replay.main()
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    shipped = {path.name: path.read_text(encoding="utf-8") for path in replay.FOLDER.glob("*.html")}
    assert sorted(made) == sorted(shipped)
    stale = [name for name in made if made[name] != shipped[name]]
    assert not stale, f"make them anew with python -m app.tools.replay: {stale}"
