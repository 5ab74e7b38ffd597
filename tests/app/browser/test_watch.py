"""The whole page in Chromium with the fake generator: questions, step slider, Stop, errors, races, files."""

import json
import time

import pytest

from app.page import web
from app.tools import record
from app.words import page as words
from jakiro.drafters.registry import METHODS
from tests.app.conftest import ask, ask_to_end, plotted, seek, send, served, wait_until_finished
from tests.app.fake import FakeGenerator, default_answer

pytestmark = pytest.mark.browser


@pytest.mark.rare
def test_scrubbing_while_live_holds_the_step_and_stop_stops(open_tab):
    with served(lambda: FakeGenerator(default_answer() * 30, pace=3)) as (_, address):
        tab = open_tab(address)
        # The answer takes six minutes, so that it is stopped before its end on a busy machine
        tab.click("#jk-settings")
        tab.fill("#length input", "2000")
        tab.wait_for_function("Jakiro.formNow().length === 2000")
        tab.click("#close-settings")
        ask(tab, "Why?")
        tab.wait_for_function("() => Number(document.querySelector('#jk-step').max) >= 4")
        seek(tab, 2)
        count = int(tab.get_attribute("#jk-step", "max"))
        tab.wait_for_function("count => Number(document.querySelector('#jk-step').max) > count + 1", arg=count)
        assert tab.get_attribute("svg.tree", "data-step") == "2"
        assert "Paused at step 3" in tab.inner_text(".where")
        tab.click(".live-button")
        tab.wait_for_function("() => Number(document.querySelector('svg.tree')?.dataset.step) > 4")
        tab.click("#stop")
        wait_until_finished(tab)
        assert tab.inner_text(".answer-end").startswith("Stopped after ")


def test_bad_input_is_one_sentence_and_the_next_request_works(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("#jk-chip.ready")
    tab.click("#ask")
    tab.wait_for_selector("#jk-notice.error")
    assert tab.inner_text("#jk-notice").endswith(words.EMPTY_QUESTION)
    send(tab, "word " * 600)
    tab.wait_for_selector('#jk-notice:has-text("600 tokens")')
    assert tab.input_value("#question textarea").startswith("word word")
    ask_to_end(tab, "Why?")
    assert tab.is_hidden("#jk-notice")


SCENARIOS = record.scenarios({"overall": 1.0})[:3]


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    """Replace the shipped recordings by three of the fake generator; return their folder."""
    for plan in SCENARIOS:
        record.write(record.record(FakeGenerator(), plan), tmp_path / f"{plan.name}.json")
    monkeypatch.setattr(web, "TRACES", tmp_path)
    return tmp_path


def test_the_page_opens_playing_a_recording_before_any_model_is_loaded(open_tab, recordings):
    with served(lambda: time.sleep(600)) as (_, address):
        tab = open_tab(address)
        tab.wait_for_selector(".sent-with:visible")
        assert tab.inner_text(".sent-with") == "Recording · 2-core CPU · 2026-01-02"
        tab.wait_for_selector("svg.tree.phase-1")
        tab.wait_for_selector("svg.tree.phase-3[data-accepted]")
        assert tab.inner_text("#jk-chip") == words.CHIP_LOADING


def test_recordings_are_listed_played_and_opened_from_files(open_tab, fake_address, recordings):
    tab = open_tab(f"{fake_address}?recording={SCENARIOS[1].name}&step=4")
    tab.wait_for_selector('svg.tree[data-step="3"]')
    tab.click('[data-tab="recordings"]')
    tab.locator(".recording-card").nth(2).wait_for()
    assert tab.locator(".recording-card").count() == 3
    tab.set_input_files("#jk-open", recordings / "3-haiku.json")
    tab.wait_for_function("() => document.querySelector('.sent-with')?.textContent.startsWith('Opened file')")
    assert tab.is_hidden("#jk-notice")
    recorded = json.loads((recordings / "3-haiku.json").read_text())["traces"]["jakiro"]
    tab.wait_for_selector("svg.tree")
    assert tab.text_content(".answer-text") == "".join(step["text"] for step in recorded["steps"])


@pytest.mark.rare
def test_further_lanes_race_when_they_are_chosen(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.click("#jk-settings")
    tab.click("#further-lanes input")
    tab.get_by_role("option", name=METHODS["prompt_lookup"].title, exact=True).click()
    tab.keyboard.press("Tab")  # closes the list, which may cover the button
    tab.click("#close-settings")
    ask(tab, "Why?")
    tab.click('[data-tab="race"]')
    wait_until_finished(tab)
    tab.wait_for_function("() => document.querySelector('.result-speedup')?.textContent.includes('×')")
    lanes = tab.locator(".lane .answer-text").all_text_contents()
    assert len(lanes) == 3 and len(set(lanes)) == 1
    assert len(plotted(tab, ".race")) == 3
    assert tab.inner_text('[data-lane="prompt_lookup"] .pane-head b') == METHODS["prompt_lookup"].title
    same = tab.locator(".lanes-table tbody td:last-child").all_text_contents()
    assert same == ["–", words.BROWSER["arena_same"], words.BROWSER["arena_same"]]
    # The race is played again from its start
    tab.wait_for_function(
        """() => [...document.querySelectorAll('[data-action="lane_tree"]')].filter((button) => {
          const lane = Jakiro.moves.state.run.lanes[button.closest('.lane').dataset.lane];
          return !button.hidden && button.textContent.endsWith(` ${lane.steps.length}`);
        }).length === 2"""
    )
    tab.click('[data-lane="prompt_lookup"] [data-action="lane_tree"]')
    last = tab.evaluate("Jakiro.moves.state.run.lanes.prompt_lookup.steps.at(-1).nodes.length")
    assert int(tab.get_attribute("dialog .tree", "data-nodes")) == last
    tab.keyboard.press("Escape")
    tab.wait_for_selector("dialog.lane-tree-dialog", state="detached")


def test_the_size_of_the_trees_is_chosen_at_the_tree_with_its_cost(open_tab, fake_address):
    tab = open_tab(fake_address, reduced_motion="reduce")
    ask_to_end(tab, "Why?")
    options = tab.locator(".tree-size option:not([hidden])").all_text_contents()
    assert [option.split()[0] for option in options] == ["automatic", "12", "24", "60"]
    assert all("tokens/s" in option for option in options[2:]), "the expected speed of a tree of this size"
    tab.select_option(".tree-size select", "60")
    tab.wait_for_function("() => Jakiro.moves.state.run.main?.header.tree.nodes === 61")
    tab.wait_for_selector('svg.tree[data-nodes="61"]')
    wait_until_finished(tab)
    assert tab.input_value(".tree-size select") == "60"
    # Next to all buttons of a large tree, its key can be read
    for width, height, kind in ((1280, 720, ""), (1200, 700, "framed"), (1366, 768, ""), (390, 844, "")):
        tab.set_viewport_size({"width": width, "height": height})
        tab.evaluate("kind => (document.documentElement.className = kind)", kind)
        tab.wait_for_function("narrow => document.querySelector('.ladder-host').hidden === !narrow", arg=width < 600)
        for step in range(5):
            seek(tab, step)
            if tab.is_visible(".whole-tree"):
                break
        assert tab.is_visible(".whole-tree")
        cut = "(key) => Math.max(key.scrollWidth - key.clientWidth, key.scrollHeight - key.clientHeight)"
        assert tab.locator(".tree-key").evaluate(cut) <= 0, (width, height)
        assert tab.locator(".tree-foot").evaluate("(foot) => foot.scrollWidth - foot.clientWidth") <= 0
    tab.evaluate("document.documentElement.className = ''")
    tab.select_option(".tree-size select", "0")
    tab.wait_for_function("() => Jakiro.moves.state.run.main?.header.tree.policy === 'auto'")
