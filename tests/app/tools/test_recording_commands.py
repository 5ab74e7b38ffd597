"""The shipped recordings have the properties that they claim, and a handout equals the file saved by the page."""

import json
from dataclasses import asdict

import pytest

from app.page import web
from app.tools import record, replay
from app.tools.figures import figures_of
from jakiro.trace import Trace
from tests.app.conftest import opened_alone, plotted

LARGEST_HANDOUT = 2_000_000  # bytes


SHIPPED = record.scenarios(record.benchmark_speedups())


@pytest.mark.parametrize("scenario", SHIPPED, ids=lambda scenario: scenario.name)
def test_every_shipped_recording_satisfies_its_rule(scenario):
    recording = json.loads(web.recording(scenario.name))
    plain, drafted = (Trace.from_dict(recording["traces"][method]) for method in ("autoregressive", "jakiro"))
    figures = figures_of(plain, drafted)
    assert figures.is_complete and scenario.rule(figures), figures
    assert plain.token_ids == drafted.token_ids
    assert recording["title"] == drafted.header.messages[-1]["content"] in scenario.questions
    assert recording["why"] == scenario.why.format(**asdict(figures))
    assert scenario.head is None or drafted.header.drafter["name"] == scenario.head


@pytest.mark.rare
@pytest.mark.browser
def test_the_handouts_equal_those_of_the_recordings_tab_and_open_from_disk(
    open_tab, fake_address, monkeypatch, tmp_path
):
    monkeypatch.setattr("sys.argv", ["replay", "--out", str(tmp_path / "handouts")])
    replay.main()
    handouts = {path.stem: path for path in (tmp_path / "handouts").iterdir()}
    assert sorted(handouts) == web.recording_names()
    assert max(path.stat().st_size for path in handouts.values()) < LARGEST_HANDOUT
    tab = open_tab(fake_address, color_scheme="light")
    tab.wait_for_selector(".jk-view[data-tab=watch]")
    tab.click('[data-tab="recordings"]')
    tab.wait_for_selector("[data-action=handout]")
    name = web.recording_names()[1]
    with tab.expect_download() as download:
        tab.locator("[data-action=handout]").nth(1).click()
    path = handouts[name]
    assert download.value.path().read_bytes() == path.read_bytes()
    assert download.value.suggested_filename.endswith(".html")
    handout = opened_alone(open_tab, path)
    handout.wait_for_selector("svg.tree")
    text = handout.evaluate("document.querySelector('.answer-text').textContent")
    assert text == Trace.from_dict(json.loads(web.recording(name))["traces"]["jakiro"]).text
    assert len(plotted(handout, ".columns")) == 2
    assert handout.loaded == [path.as_uri()]
    title = "A <title> & more</title><script>"
    made = tab.evaluate("([text, title]) => Jakiro.asReplay(text, title)", [web.recording(name), title])
    assert made == replay.replay_page(web.recording(name), title)
