"""The card of a word, forks to an alternative, and the branches they create: by mouse, by keyboard and on a phone."""

import pytest

from tests.app.conftest import ask_to_end, opened_alone, saved, wait_until_finished
from tests.app.fake import ANSWER

pytestmark = pytest.mark.browser
CARD = ".alternatives:popover-open"
BAR = ".branches:not([hidden]) .tabular"
QUESTION = "Why is the sky blue?"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
WORDS = ANSWER.rstrip().split(" ")


@pytest.fixture
def tab(open_tab, fake_address):
    tab = open_tab(fake_address)
    ask_to_end(tab, QUESTION)
    return tab


def word(index: int) -> str:
    return f'#jk-answer .answer-host [data-token="{index}"]'


def text(tab) -> str:
    return tab.evaluate("Jakiro.textOf(Jakiro.state.run.main, Infinity)")


def shows(tab, branch: str) -> None:
    """Wait until the bar shows the branch; it is drawn with the next frame."""
    tab.wait_for_function("([bar, words]) => document.querySelector(bar)?.textContent === words", arg=[BAR, branch])


def fork(tab, index: int, token_id: int) -> None:
    """Press an alternative of a word and wait for the branch."""
    tab.locator(word(index)).last.click()
    before = tab.evaluate("Jakiro.state.run.id")
    tab.click(f'{CARD} [data-id="{token_id}"]')
    tab.wait_for_function("before => Jakiro.state.run.id !== before && Jakiro.state.run.finished", arg=before)


def forked(index: int, alternative: str = " other") -> str:
    return " ".join(WORDS[:index]) + alternative + " " + " ".join(WORDS[index + 1 :])


def test_the_card_shows_chances_with_the_chosen_word_marked(tab):
    tab.click(word(3))
    card = tab.locator(CARD)
    card.wait_for()
    assert card.locator(".mono").all_inner_texts()[0] == "␣blue"
    lines = card.locator("button.alternative").all_inner_texts()
    assert [line.split() for line in lines] == [
        ["␣blue", "60.0", "%", "✓", "chosen"],
        ["␣other", "20.0", "%"],
        ["␣further", "7.4", "%"],
        ["‹E4›", "2.7", "%"],
        ["↵", "1.0", "%"],
        ["‹im_end›", "0.5", "%"],
    ]
    # An answer cannot continue after the stop token
    assert card.locator("button:disabled").all_inner_texts()[0].startswith("‹im_end›")
    assert tab.locator(".asked-about").inner_text().strip() == "blue"
    tab.keyboard.press("Escape")
    tab.wait_for_function("() => !document.querySelector('.asked-about, .alternatives:popover-open')")


def test_a_fork_keeps_what_came_before_and_branches_are_switched_and_undone(tab):
    original = text(tab)
    fork(tab, 10, 2000)
    assert text(tab) == forked(10)
    shows(tab, "Branch 2 of 2")
    assert tab.locator(".token.forced").inner_text().strip() == "other"
    assert tab.evaluate("Jakiro.state.run.main.header.forced") == [[10, 2000]]
    # A word before the fork still has its card, and the fork can be forked
    fork(tab, 4, 2001)
    shows(tab, "Branch 3 of 3")
    assert text(tab) == forked(4, " further")
    tab.click('[data-action="branch_before"]')
    shows(tab, "Branch 2 of 3")
    assert text(tab) == forked(10)
    tab.click('[data-action="branch_undo"]')
    shows(tab, "Branch 1 of 2")
    assert text(tab) == original
    tab.click('[data-action="branch_next"]')
    assert text(tab) == forked(4, " further")
    # The card of the chosen word also marks the original word
    tab.click(word(4))
    assert tab.locator(CARD).locator("p").inner_text().startswith("You chose it.")
    assert tab.locator(f"{CARD} .alternative").nth(2).inner_text().split()[-1] == "chosen"


def test_a_fork_in_the_middle_of_a_character(tab):
    half = tab.evaluate("Jakiro.state.run.main.tokens.findIndex(t => t.bytes.at(-1) === 0x9f)")
    fork(tab, half, tab.evaluate("i => Jakiro.state.run.main.tokens[i].id", half))
    shows(tab, "Branch 2 of 2")
    assert text(tab) == ANSWER.rstrip()


@pytest.mark.rare
def test_a_fork_works_with_the_keyboard_only(tab):
    tab.locator("#view .jk-view").focus()
    tab.keyboard.press("Home")
    tab.keyboard.press("a")
    head = tab.locator(f"{CARD} .card-head")
    head.filter(has_text="␣sky").wait_for()
    tab.keyboard.press("ArrowRight")
    head.filter(has_text="␣is").wait_for()
    tab.keyboard.press("ArrowDown")
    tab.wait_for_selector('[data-id="2000"]:focus')
    tab.keyboard.press("Enter")
    tab.wait_for_selector(BAR)
    wait_until_finished(tab)
    assert text(tab) == forked(2)


@pytest.mark.rare
def test_on_a_phone_the_card_has_targets_for_fingers(open_tab, fake_address):
    tab = open_tab(fake_address, **PHONE)
    ask_to_end(tab, QUESTION)
    tab.tap(word(3))
    tab.wait_for_selector(CARD)
    heights = tab.locator(f"{CARD} button.alternative").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert min(heights) >= 44
    tab.tap(f'{CARD} [data-id="2000"]')
    tab.wait_for_selector(BAR)
    wait_until_finished(tab)
    assert text(tab) == forked(3)


def test_a_fork_of_an_earlier_turn_puts_later_ones_away_and_a_reload_keeps_both_branches(tab):
    original = text(tab)
    ask_to_end(tab, "And at night?")
    tab.evaluate("Jakiro.show(Jakiro.state.turns[0])")
    fork(tab, 5, 2000)
    assert tab.evaluate("Jakiro.state.turns.length") == 1
    tab.reload()
    tab.wait_for_selector(BAR)
    shows(tab, "Branch 2 of 2")
    tab.wait_for_function("Jakiro.state.run.main")  # the steps follow the text
    assert text(tab) == forked(5)
    tab.click('[data-action="branch_before"]')
    shows(tab, "Branch 1 of 2")  # after its steps are read from the database
    assert text(tab) == original and tab.evaluate("Jakiro.state.turns.length") == 2


def test_a_reload_before_the_steps_are_on_disk_requests_them_again(tab):
    tab.evaluate(
        """() => {
            const put = IDBObjectStore.prototype.put;
            IDBObjectStore.prototype.put = function (record) {
                return this.name === "traces" ? new Promise(() => {}) : put.call(this, record);
            };
        }"""
    )
    fork(tab, 5, 2000)
    tab.reload()
    tab.wait_for_selector(BAR)
    shows(tab, "Branch 2 of 2")
    tab.wait_for_function("Jakiro.state.run.main && Jakiro.state.run.finished")
    assert text(tab) == forked(5)


@pytest.mark.rare
def test_a_link_goes_on_from_the_same_place_and_a_saved_replay_keeps_branches(tab, open_tab, fake_address, tmp_path):
    original = text(tab)
    tab.evaluate("Jakiro.goOnFrom(Jakiro.state.run, 3, 'x')")
    tab.wait_for_selector("#jk-notice:not([hidden])")
    assert text(tab) == original and not tab.locator(BAR).count(), "a refused request changes nothing"
    fork(tab, 6, 2000)
    link = tab.evaluate("Jakiro.linkTo(Jakiro.state).link")
    linked = open_tab(fake_address + "#" + link.split("#")[1])
    linked.wait_for_function("window.Jakiro?.state.linked")
    linked.click("#ask")
    linked.wait_for_selector('.jk-view[data-run]:not([data-run^="recording"])')
    wait_until_finished(linked)
    assert text(linked) == forked(6) and linked.evaluate("Jakiro.state.run.main.header.forced") == [[6, 2000]]
    path = tmp_path / "replay.html"
    saved(tab, "save_html").save_as(path)
    replay = opened_alone(open_tab, path)
    replay.wait_for_selector(BAR)
    shows(replay, "Branch 2 of 2")
    assert text(replay) == forked(6)
    replay.click('[data-action="branch_before"]')
    assert text(replay) == original
    replay.click(word(6))
    replay.wait_for_selector(f"{CARD} div.alternative")
    assert replay.locator(f"{CARD} div.alternative").count() == 6
    assert not replay.locator(f"{CARD} button[data-id]").count()
