"""A lecture in projector mode at 1920 × 1080 works with the keys of a clicker and without scrolling."""

import pytest

from app.page.offered import offered_questions
from app.words import page as words
from tests.app.conftest import wait_until_finished

pytestmark = pytest.mark.browser
LOWEST = """selectors => Math.max(...[...document.querySelectorAll(selectors)]
  .filter(element => element.offsetParent).map(element => element.getBoundingClientRect().bottom))"""


@pytest.fixture
def tab(open_tab, fake_address):
    tab = open_tab(fake_address, viewport={"width": 1920, "height": 1080}, reduced_motion="reduce")
    tab.wait_for_selector("#jk-chip.ready")
    tab.wait_for_selector("svg.tree")
    tab.click(".page-menu > summary")
    tab.click('[data-action="projector"]')
    tab.click("h1")
    return tab


@pytest.mark.rare
def test_keys_act_wherever_the_focus_is_but_in_text_fields(tab):
    step = "step => document.querySelector('svg.tree')?.dataset.step === step"
    for focus in (".live-button, .icon-button", '[data-tab="watch"]'):
        tab.evaluate("Jakiro.moves.seek(1)")
        tab.evaluate("selector => document.querySelector(selector).focus()", focus)
        for key, expected in (("PageDown", "2"), ("ArrowRight", "3"), ("ArrowLeft", "2"), ("PageUp", "1")):
            tab.keyboard.press(key)
            tab.wait_for_function(step, arg=expected)
    tab.evaluate("document.documentElement.classList.remove('projector')")
    tab.focus("#question textarea")
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.type("n 3 g")
    assert tab.input_value("#question textarea") == "n 3 g"
    tab.wait_for_function(step, arg="1")


# The hint is drawn with the next frame
SAID = f"""said => document.querySelector('#view .keys-hint')?.textContent === said + ' · {words.BROWSER["key_ask"]}'"""


@pytest.mark.rare
def test_nine_stops_and_a_live_question_by_a_clicker_alone(tab):
    """Each press plays a part of the stop or opens the next; the nine stops follow in order."""
    tab.click('[data-tab="lesson"]')
    tab.wait_for_selector("#lesson .stop[data-stop='1']")
    seen = []
    while tab.evaluate("document.body.dataset.jakiroTab") == "lesson":
        stop = int(tab.get_attribute("#lesson .stop", "data-stop"))
        lowest = tab.evaluate(LOWEST, "#lesson .stop, #lesson .stop-pane")
        assert lowest <= 1080, f"stop {stop} ends at {lowest}"
        if stop == 8:
            assert tab.is_visible("#lesson .chances-box p.muted"), "the chances are explained in a hall too"
        seen.append(stop)
        before = tab.inner_html("#lesson .stop-screen")  # with its text, controls and numbers
        tab.keyboard.press("PageDown")
        tab.wait_for_function(
            "before => document.body.dataset.jakiroTab !== 'lesson'"
            " || document.querySelector('#lesson .stop-screen')?.innerHTML !== before",
            arg=before,
        )
        assert len(seen) < 60
    assert sorted(set(seen)) == list(range(1, 10)) and seen == sorted(seen)
    assert all(seen.count(stop) > 1 for stop in set(seen)), "each stop has something to play"
    tab.wait_for_function(SAID, arg=words.BROWSER["keys_ask"])
    assert tab.input_value("#question textarea") == offered_questions()[0]
    tab.keyboard.press("PageDown")
    tab.wait_for_function("() => /^[0-9a-f]{32}$/.test(document.querySelector('.jk-view')?.dataset.run)")
    wait_until_finished(tab)
    tab.wait_for_selector(f'.lead:text-matches("{words.BROWSER["race_same"]}$")')
    assert tab.evaluate(LOWEST, ".race-bars, .lane, .lead-line, .scrubber") <= 1080
    tab.wait_for_function(SAID, arg=words.BROWSER["keys_race"])
    tab.keyboard.press("PageDown")
    tab.wait_for_function("() => Jakiro.moves.state.playing && Jakiro.moves.state.time !== null")


def test_a_key_opens_the_question_row_and_sending_hides_it(tab):
    tab.evaluate("Jakiro.setTab('recordings')")
    tab.wait_for_selector(".keys-hint", state="hidden")  # keys do nothing there
    tab.click('[data-tab="watch"]')
    height = "document.querySelector('#question-row').getBoundingClientRect().height"
    assert tab.evaluate(height) <= 1
    tab.fill("#question textarea", "A question that was offered")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("q")
    assert tab.evaluate(height) > 40
    tab.keyboard.type("Why q?")
    tab.keyboard.press("Escape")
    assert tab.evaluate(height) <= 1
    tab.keyboard.press("q")
    tab.keyboard.press("Enter")
    tab.wait_for_function("Jakiro.moves.state.run?.question === 'Why q?'")
    wait_until_finished(tab)
    assert tab.evaluate(height) <= 1
    assert tab.evaluate(LOWEST, ".headline, .answer-scroll, .tree-pane, .scrubber, .keys-hint") <= 1080
    font_sizes = "all => all.map((text) => parseFloat(getComputedStyle(text).fontSize))"
    sizes = tab.locator("svg.tree .node text").evaluate_all(font_sizes)
    assert len(sizes) >= 4 and min(sizes) >= 24, "in large type"
