"""The whole page in chromium over the fake generator: asking, scrubbing while live, stop, errors, dark, phone."""

import json
import time

import pytest

from app.page import web
from app.tools import record
from app.words import page as words
from jakiro.methods import METHODS
from tests.app.conftest import (
    ask,
    hold_clock,
    plotted,
    run_until,
    seek,
    served,
    wait_for_count,
    wait_for_frames,
    wait_until_finished,
)
from tests.app.fake import FakeGenerator, default_answer

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("no_problems")]


@pytest.fixture(scope="module")
def api(fake_address, connect):
    return connect(fake_address)


@pytest.fixture(scope="module")
def tab(tabs, fake_address):
    """One tab with an ended answer, for all tests that ask for no more."""
    tab = tabs.open(fake_address, [])
    ask(tab, "Why is the sky blue?")
    wait_until_finished(tab)
    yield tab
    tab.close()


def test_updates_that_were_lost_come_from_the_server_once_more(tab):
    written = "(() => { const { main } = Jakiro.moves.state.run; return Jakiro.textOf(main, main.tokens.length); })()"
    text = tab.evaluate(written)
    tab.evaluate(
        "() => { const run = Jakiro.moves.state.run; run.number = run.ticks - 1;"
        " Object.assign(run, { ticks: 0, finished: false, lanes: {} });"
        " Jakiro.screen.state.waiting = run; Jakiro.receive({ run: run.id, ticks: { [run.number]: '[]' } }); }"
    )
    tab.wait_for_function("() => Jakiro.moves.state.run.ticks > Jakiro.moves.state.run.number")
    wait_until_finished(tab)
    assert tab.evaluate(written) == text != ""


def test_an_answer_that_ended_shows_the_step_on_screen_once(open_tab):
    with served(lambda: FakeGenerator(default_answer() * 4)) as (_, address):
        tab = open_tab(address)
        tab.wait_for_selector("#jk-chip.ready")
        tab.evaluate("Jakiro.fill(document.querySelector('#length input'), 400)")
        ask(tab, "Why?")
        wait_until_finished(tab)
        inside = """() => { const end = document.querySelector('.answer-text .selected').getBoundingClientRect();
          const room = document.querySelector('.answer-scroll').getBoundingClientRect();
          return end.top >= room.top && end.bottom <= room.bottom; }"""
        tab.wait_for_function(inside)
        tab.evaluate("document.querySelector('.answer-scroll').scrollTop = 40; Jakiro.redraw()")
        wait_for_frames(tab)
        assert tab.evaluate("document.querySelector('.answer-scroll').scrollTop") == 40, "who reads scrolls"


# Wherever the drawer is scrolled to
FREE = """([field, share]) => { const list = document.querySelector(field);
  document.querySelector('#settings').scrollTop += list.getBoundingClientRect().top - innerHeight * share;
  list.blur();
  list.focus(); }"""
# One list goes, and another one comes flying
LANDED = """() => { const lists = document.querySelectorAll('#settings .options');
  return lists.length === 1 && lists[0].getAnimations().every(({ playState }) => playState === 'finished'); }"""
PRESSED = """() => { const close = document.querySelector('#close-settings');
  const { left, top, width, height } = close.getBoundingClientRect();
  return close.contains(document.elementFromPoint(left + width / 2, top + height / 2)); }"""


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (1280, 600), (320, 640)])
def test_no_list_of_methods_lies_over_the_drawer_s_close_button(open_tab, fake_address, width, height):
    tab = open_tab(fake_address, viewport={"width": width, "height": height})
    tab.wait_for_selector("#jk-chip.ready")
    tab.click("#jk-settings")
    assert tab.evaluate("document.querySelector('#settings').getBoundingClientRect().left") >= 0
    for field in ("#method input", "#further-lanes input"):
        for share in (0.3, 0.5, 0.7):
            tab.evaluate(FREE, [field, share])
            tab.wait_for_selector("#settings .options")
            wait_for_frames(tab)
            tab.wait_for_function(LANDED)
            assert tab.locator("#settings .options li").count() > 5
            assert tab.evaluate(PRESSED), (field, share)
    tab.click("#close-settings")
    tab.wait_for_selector("#settings", state="hidden")


EFFECTLESS = ".phases, .scrubber, .plot-pane, .panels, .race-more"


def test_before_anything_is_asked_or_played_there_is_one_sentence_and_nothing_without_effect(
    open_tab, monkeypatch, tmp_path
):
    monkeypatch.setattr(web, "TRACES", tmp_path)
    with served(FakeGenerator) as (_, address):
        tab = open_tab(address)
        shown = "selectors => [...document.querySelectorAll(selectors)].filter(one => one.checkVisibility()).length"
        for name, sentence in (("race", "race_empty"), ("watch", "empty_answer")):
            tab.click(f'[data-tab="{name}"]')
            tab.wait_for_selector(f"text={words.BROWSER[sentence]}")
            assert tab.evaluate(shown, EFFECTLESS) == 0, name
        ask(tab, "Why?")
        wait_until_finished(tab)
        tab.wait_for_function(f"selectors => ({shown})(selectors) === 4", arg=EFFECTLESS)


CONTROLS = "button, input, textarea, select, a[href], summary, [role=tab], [role=slider], [tabindex='0']"


def test_the_first_screen_has_few_controls_and_most_of_it_is_the_answer(open_tab, fake_address):
    tab = open_tab(fake_address, reduced_motion="reduce")
    tab.wait_for_selector("svg.tree")
    tab.wait_for_selector(".columns .plot .main-svg")
    seen = tab.evaluate(
        """selector => [...document.querySelectorAll(selector)]
          .filter(one => one.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && one.offsetWidth)
          .map(one => one.id || one.className || one.textContent)""",
        CONTROLS,
    )
    assert len(seen) <= 25, seen
    lines = tab.evaluate(
        """() => { const text = document.querySelector('.columns .answer-text');
          const [box, top] = [document.querySelector('#jk-answer'), text.getBoundingClientRect().top];
          return (box.getBoundingClientRect().bottom - top) / parseFloat(getComputedStyle(text).lineHeight); }"""
    )
    assert lines >= 16


def test_scrubbing_while_live_holds_the_step_and_stop_stops(open_tab):
    with served(lambda: FakeGenerator(default_answer() * 4, pace=3)) as (_, address):
        tab = open_tab(address)
        ask(tab, "Why?")
        tab.wait_for_function("() => Number(document.querySelector('#jk-step').max) >= 4")
        seek(tab, 2)
        count = int(tab.get_attribute("#jk-step", "max"))
        tab.wait_for_function("count => Number(document.querySelector('#jk-step').max) > count + 1", arg=count)
        assert tab.get_attribute("svg.tree", "data-step") == "2"
        assert "Paused at step 3" in tab.inner_text(".where")
        tab.click(".live-button")
        tab.wait_for_function("() => Number(document.querySelector('svg.tree').dataset.step) > 4")
        tab.click("#stop")
        wait_until_finished(tab)
        assert tab.inner_text(".answer-end").startswith("Stopped after ")


def test_bad_input_is_one_sentence_and_the_next_request_works(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("#jk-chip.ready")
    tab.click("#ask")
    tab.wait_for_selector("#jk-notice.error")
    assert tab.inner_text("#jk-notice").endswith(words.EMPTY_QUESTION)
    tab.fill("#question textarea", "word " * 600)
    tab.click("#ask")
    tab.wait_for_function("() => document.querySelector('#jk-notice').textContent.includes('600 tokens')")
    assert tab.input_value("#question textarea").startswith("word word")
    ask(tab, "Why?")
    wait_until_finished(tab)
    assert tab.is_hidden("#jk-notice")


SCENARIOS = record.scenarios({"overall": 1.0})[:3]


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    """Three shipped recordings made by the recorder from the fake generator."""
    for plan in SCENARIOS:
        record.write(record.record(FakeGenerator(), plan), tmp_path / f"{plan.name}.json")
    monkeypatch.setattr(web, "TRACES", tmp_path)
    return tmp_path


def test_the_page_opens_playing_a_recording_before_any_model_is_loaded(open_tab, recordings):
    with served(lambda: time.sleep(600)) as (_, address):
        tab = open_tab(address, clock=True)
        tab.wait_for_selector(".sent-with:visible")
        hold_clock(tab)
        assert tab.inner_text(".sent-with") == "Recording · 2-core CPU · 2026-01-02"
        for shown in ("svg.tree.phase-1", "svg.tree.phase-3[data-accepted]"):
            run_until(tab, shown)
        while tab.evaluate("Jakiro.moves.state.playing"):
            tab.clock.run_for(500)
        tab.clock.run_for(500)  # its last moment is drawn
        tab.wait_for_selector('.phase[data-phase="3"]:has(:checked)')
        rest = int(tab.get_attribute("svg.tree", "data-step"))
        path = tab.get_attribute("svg.tree", "data-accepted").split(",")
        steps = json.loads((recordings / f"{SCENARIOS[0].name}.json").read_text())["traces"]["jakiro"]["steps"]
        assert len(path) == len(steps[rest]["accepted_path"]) >= 2
        assert len({steps[rest]["nodes"][int(node)]["proposer"] for node in path}) > 1
        assert tab.inner_text("#jk-chip") == words.CHIP_LOADING


def test_recordings_are_listed_played_and_opened_from_files(open_tab, fake_address, recordings):
    tab = open_tab(f"{fake_address}?recording={SCENARIOS[1].name}&step=4")
    tab.wait_for_selector('svg.tree[data-step="3"]')
    tab.click('[data-tab="recordings"]')
    wait_for_count(tab, ".recording-card", 3)
    tab.set_input_files("#jk-open", {"name": "x.json", "mimeType": "application/json", "buffer": b'{"header": {}}'})
    tab.wait_for_selector("#jk-notice.error")
    assert tab.inner_text("#jk-notice").endswith(
        "This file holds no saved answer: the field “steps” is missing or does not fit."
    )
    tab.set_input_files("#jk-open", recordings / "3-haiku.json")
    tab.wait_for_function("() => document.querySelector('.sent-with')?.textContent.startsWith('Opened file')")
    assert tab.is_hidden("#jk-notice")
    recorded = json.loads((recordings / "3-haiku.json").read_text())["traces"]["jakiro"]
    tab.wait_for_selector("svg.tree")
    assert tab.evaluate("document.querySelector('.answer-text').textContent") == "".join(
        step["text"] for step in recorded["steps"]
    )


def test_a_changed_setting_holds_for_the_next_answer(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.click("#jk-settings")
    assert tab.is_disabled("#candidates input")
    tab.fill("#seed input", "5")
    tab.get_by_label(words.FIXED).check()
    tab.wait_for_selector("#candidates input:enabled")
    tab.fill("#candidates input", "7")
    ask(tab, "Why?")
    wait_until_finished(tab)
    assert tab.evaluate("Jakiro.moves.state.run.main.header.sampling.seed") == 5
    assert tab.evaluate("Jakiro.moves.state.run.main.steps[0].nodes.length") == 8


def test_further_lanes_race_when_they_are_chosen(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("#jk-chip.ready")
    tab.click("#jk-settings")
    tab.click("#further-lanes input")
    tab.get_by_role("option", name=METHODS["prompt_lookup"].title, exact=True).click()
    tab.keyboard.press("Tab")  # puts the list away, which may lie over the button
    tab.click("#close-settings")
    ask(tab, "Why?")
    tab.click('[data-tab="race"]')
    wait_until_finished(tab)
    tab.wait_for_function("() => document.querySelector('.result-speedup')?.textContent.includes('×')")
    lanes = tab.evaluate("[...document.querySelectorAll('.lane .answer-text')].map(lane => lane.textContent)")
    assert len(lanes) == 3 and len(set(lanes)) == 1
    assert len(plotted(tab, ".race")) == 3
    assert tab.inner_text('[data-lane="prompt_lookup"] .pane-head b') == METHODS["prompt_lookup"].title
    rows = tab.evaluate("[...document.querySelectorAll('.lanes-table tbody tr')].map(row => row.cells.length)")
    assert rows == [9, 9, 9]
    same = tab.evaluate(
        "[...document.querySelectorAll('.lanes-table tbody td:last-child')].map(cell => cell.textContent)"
    )
    assert same == ["–", words.BROWSER["arena_same"], words.BROWSER["arena_same"]]
    assert tab.locator('[data-action="lane_tree"]:visible').count() == 2
    tab.click('[data-lane="prompt_lookup"] [data-action="lane_tree"]')
    last = tab.evaluate("Jakiro.moves.state.run.lanes.prompt_lookup.steps.at(-1).nodes.length")
    assert int(tab.get_attribute("dialog .tree", "data-nodes")) == last
    tab.keyboard.press("Escape")
    tab.wait_for_selector("dialog.lane-tree-dialog", state="detached")
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.locator(".lane:visible").count() == 1, "one text is enough where there is little room"
    tab.click('[data-choose="autoregressive"]')
    assert tab.is_visible('[data-lane="autoregressive"]') and tab.locator(".lane:visible").count() == 1


# The last place of its bar, and the steps that a new answer has
NEW_ANSWER = """() => { const view = document.querySelector('.jk-view');
  if (!/^[0-9a-f]{32}$/.test(view.dataset.run)) return null;
  return [Number(document.querySelector('#jk-step').max), Jakiro.moves.state.run.main.steps.length]; }"""


def test_with_a_new_answer_s_first_words_the_bar_is_its_own(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("#jk-chip.ready")
    tab.wait_for_function("() => Number(document.querySelector('#jk-step')?.max) > 10")
    tab.fill("#question textarea", "Why?")
    tab.click("#ask")
    last, steps = tab.wait_for_function(NEW_ANSWER).json_value()
    assert last <= max(0, steps - 1)
    wait_until_finished(tab)
