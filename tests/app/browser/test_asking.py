"""No question or answer is lost silently: questions in any order, broken connections, a failing server."""

import json
import re

import pytest

from app.words import page as words
from app.words.lesson import BROWSER as LESSON_WORDS
from tests.app.conftest import ask, send, served_slow, wait_until_finished

pytestmark = [pytest.mark.browser]
TURNS = "Jakiro.moves.state.turns.map(run => [run.question, run.finished])"
GROWN = "count => Jakiro.lane()?.tokens.length > count && Jakiro.moves.state.run.source === 'live'"


@pytest.fixture(scope="module")
def slow():
    with served_slow() as page:
        yield page


@pytest.fixture
def tab(open_tab, slow):
    tab = open_tab(slow[2], reduced_motion="reduce")
    tab.wait_for_selector("#jk-chip.ready")
    yield tab
    tab.evaluate("document.querySelector('#stop').click()")


def ask_and_stop(tab, question: str) -> None:
    ask(tab, question)
    tab.click("#stop")
    wait_until_finished(tab)


def fail_on(tab, *names: str):
    """Make server functions with these names fail; return a function that ends the failures."""

    def answer(route):
        failing = json.loads(route.request.post_data)["fn_name"] in names
        route.fulfill(status=500, body='{"detail": "no"}') if failing else route.continue_()

    tab.route("**/component_server/", answer)
    return lambda: tab.unroute("**/component_server/")


def test_a_question_during_an_answer_ends_it_and_is_answered(tab, slow):
    ask(tab, "First?")
    tab.wait_for_function(GROWN, arg=4)
    ask(tab, "Second?")
    tab.wait_for_function(GROWN, arg=4)
    assert tab.evaluate(TURNS) == [["First?", True], ["Second?", False]]
    tab.wait_for_function("Jakiro.moves.state.turns[0].lanes.jakiro.endReason === 'stopped'")
    assert slow[0].most_active <= 2, "the two lanes of one answer"
    assert tab.input_value("#question textarea") == ""


@pytest.mark.rare
def test_two_questions_at_the_same_time_are_sent_with_their_own_settings(tab):
    ask_and_stop(tab, "First?")
    seed = tab.evaluate("Jakiro.moves.state.run.main.header.sampling.seed")
    tab.evaluate("Jakiro.askAgain(Jakiro.moves.state.turns[0])")
    send(tab, "Own words?")
    tab.wait_for_function("Jakiro.moves.state.run?.question === 'Own words?'")
    assert tab.evaluate("Jakiro.moves.state.run.main.header.sampling.seed") == seed
    assert tab.evaluate("Jakiro.moves.state.turns.map(run => run.question)") == ["First?", "Own words?"]


@pytest.mark.rare
def test_a_question_without_a_connection_is_kept_and_not_sent_with_the_next_one(tab):
    ask_and_stop(tab, "First?")
    before = tab.get_attribute(".jk-view", "data-run")
    tab.fill("#question textarea", "Are you there?")
    tab.context.set_offline(True)
    tab.wait_for_function("!navigator.onLine")
    for key in (None, "Enter"):
        tab.evaluate("Jakiro.notify(null)")
        tab.press("#question textarea", key) if key else tab.click("#ask")
        tab.wait_for_selector(f"#jk-notice:has-text('{words.BROWSER['offline_kept']}')")
        tab.wait_for_function("document.querySelector('#question textarea').value === 'Are you there?'")
    tab.evaluate("Jakiro.notify(null); Jakiro.askAgain(Jakiro.moves.state.turns[0])")
    tab.wait_for_selector("#jk-notice:visible")
    tab.context.set_offline(False)
    # A page whose connection Gradio has reported as lost is loaded again, and its message goes
    tab.wait_for_function("!document.querySelector('.toast-item') && document.querySelector('#jk-chip.ready')")
    tab.wait_for_function("before => document.querySelector('.jk-view')?.dataset.run === before", arg=before)
    ask(tab, "Second?")
    assert tab.evaluate("Jakiro.moves.state.run.main.header.sampling.seed") == 0
    assert tab.evaluate("Jakiro.moves.state.turns.map(run => run.question)") == ["First?", "Second?"]


@pytest.mark.rare
def test_an_edit_while_a_question_waits_loses_neither(tab, open_tab, slow):
    ask_and_stop(tab, "First?")
    second_tab = open_tab(slow[2])
    ask(second_tab, "Another’s?")
    send(tab, "Second?")
    tab.wait_for_selector(".answer-pane .waiting:visible")
    tab.evaluate("Jakiro.edit(Jakiro.moves.state.turns[0])")
    assert tab.input_value("#question textarea") == "First?"
    second_tab.click("#stop")
    tab.wait_for_function("Jakiro.moves.state.run?.question === 'Second?'")
    tab.wait_for_selector(".answer-pane .waiting", state="hidden")
    assert tab.evaluate("Jakiro.moves.state.turns.map(run => run.question)") == ["First?", "Second?"]
    assert tab.input_value("#question textarea") == "First?"


def test_a_reload_in_the_middle_of_an_answer_goes_on_with_it(tab, slow, monkeypatch):
    ask(tab, "Reloaded?")
    tab.wait_for_function(GROWN, arg=4)
    run = tab.get_attribute(".jk-view", "data-run")
    tab.reload()
    grows = "run => { const now = window.Jakiro?.moves?.state.run; return now?.id === run && !now.finished; }"
    tab.wait_for_function(grows, arg=run)
    num_tokens = tab.evaluate("Jakiro.lane().tokens.length")
    tab.wait_for_function(GROWN, arg=num_tokens + 4)
    assert tab.evaluate(TURNS) == [["Reloaded?", False]]
    assert tab.is_hidden("#jk-notice") and tab.input_value("#question textarea") == ""
    monkeypatch.setattr(slow[0], "pace", 0.1)
    wait_until_finished(tab)
    assert tab.evaluate("Jakiro.moves.state.run.main.endReason") == "length"
    texts = tab.evaluate("Object.values(Jakiro.state.run.lanes).map(lane => Jakiro.textOf(lane, Infinity))")
    full_text = b"".join(slow[0].pieces).decode()
    assert all(text and full_text.startswith(text.rstrip("�")) for text in texts)


@pytest.mark.rare
def test_a_reload_while_the_question_waits_keeps_its_place(tab, open_tab, slow):
    second_tab = open_tab(slow[2])
    ask(second_tab, "Another’s?")
    send(tab, "Mine?")
    tab.wait_for_selector(".answer-pane .waiting:visible")
    tab.reload()
    tab.wait_for_selector(".answer-pane .waiting:visible")
    second_tab.click("#stop")
    tab.wait_for_function("Jakiro.moves.state.run?.question === 'Mine?'")
    assert tab.input_value("#question textarea") == ""


def test_after_a_reload_an_answer_that_is_not_kept_leaves_its_text_and_question(tab, slow):
    ask(tab, "Forgotten?")
    tab.wait_for_function(GROWN, arg=4)
    runs = slow[1].runs
    with runs._lock:
        at_work = [run for _, run, _ in runs._runs.values()]
    for run in at_work:
        run.stop()
    wait_until_finished(tab)
    tab.evaluate("id => { Jakiro.moves.state.lost = Jakiro.moves.state.run; Jakiro.moves.state.run.id = id }", "c" * 32)
    tab.reload()
    tab.wait_for_selector("#jk-notice:visible")
    assert "is no longer kept" in tab.inner_text("#jk-notice")
    assert tab.input_value("#question textarea") == "Forgotten?"
    assert tab.evaluate(TURNS) == [["Forgotten?", True]]


@pytest.mark.rare
def test_a_lost_connection_is_reported_and_resumed_when_it_is_back(open_tab, slow):
    tab = open_tab(slow[2], reduced_motion="reduce", clock=True)
    ask(tab, "Broken?")
    tab.wait_for_function(GROWN, arg=4)
    run = tab.get_attribute(".jk-view", "data-run")
    tab.route("**/status", lambda route: route.abort())
    tab.evaluate("Object.defineProperty(Jakiro.moves.state.run, 'heard', { get: () => -1e6, set() {} })")
    tab.clock.fast_forward(3000)
    tab.wait_for_function("Jakiro.moves.state.lost")
    # Updates that were already sent may arrive after the count
    said = re.escape(words.BROWSER["connection_lost"].format(n="0000")).replace("0000", "[1-9][0-9]*")
    assert re.search(f"{said}$", tab.inner_text("#jk-notice"))
    assert tab.evaluate("Jakiro.lane().tokens.length") > 2, "the text so far is kept"
    assert tab.input_value("#question textarea") == "Broken?"
    # A screen reader gets the same message instead of the end of the answer
    tab.wait_for_function(
        "said => RegExp(said).test(document.querySelector('.voice[aria-live]')?.textContent)", arg=said
    )
    tab.unroute("**/status")
    tab.clock.fast_forward(3000)
    tab.wait_for_function("run => Jakiro.moves.state.run?.id === run && !Jakiro.moves.state.run.finished", arg=run)
    assert tab.is_hidden("#jk-notice") and tab.input_value("#question textarea") == ""
    tab.click("#stop")


@pytest.mark.rare
@pytest.mark.parametrize("comes", [True, False])
def test_a_question_that_the_server_has_not_received_is_awaited_and_then_returned_to_its_box(tab, comes):
    """A browser may delay the request and send the later ones of the page first."""
    held = []
    tab.route("**/queue/join*", lambda route: held.append(route))
    send(tab, "Held back?")
    tab.wait_for_function("Jakiro.moves.state.waiting")
    tab.evaluate("Jakiro.moves.state.waiting.heard = -1e6")
    tab.wait_for_function("Jakiro.moves.state.waiting.unknown > 1")
    assert tab.is_hidden("#jk-notice")
    if comes:
        held[0].continue_()
        tab.wait_for_function(GROWN, arg=4)
        assert tab.evaluate(TURNS) == [["Held back?", False]]
    else:
        tab.evaluate("Jakiro.moves.state.waiting.unknown = 9")
        tab.wait_for_selector("#jk-notice:visible")
        assert tab.input_value("#question textarea") == "Held back?" and tab.evaluate(TURNS) == []
        held[0].abort()  # else the browser sends it when the tab is closed, and the next test waits for its answer


def test_a_missed_update_that_cannot_be_fetched_does_not_end_the_answer(tab):
    ask(tab, "Missed?")
    tab.wait_for_function(GROWN, arg=4)
    heal = fail_on(tab, "missed")
    with tab.expect_response("**/component_server/"):
        tab.evaluate("Jakiro.receive({ run: Jakiro.moves.state.run.id, ticks: { 9999: '[]' } })")
    tab.wait_for_function(GROWN, arg=tab.evaluate("Jakiro.lane().tokens.length") + 1)
    assert not tab.evaluate("Jakiro.moves.state.run.finished")
    heal()


@pytest.mark.rare
@pytest.mark.parametrize(
    ("name", "where", "content"),
    [
        ("recording_names", "recordings", ".recording-card"),
        ("recording_names", "watch", "svg.tree"),
        ("recording", "recordings", ".recording-card"),
        ("lesson_recordings", "lesson", ".stop .stop-screen"),
        ("benchmark_recorded", "benchmark", ".bench-scroll"),
    ],
)
def test_a_failed_request_of_the_page_is_reported_and_can_be_retried(open_tab, slow, name, where, content):
    tab = open_tab(None)
    heal = fail_on(tab, name)
    tab.goto(slow[2])
    tab.click(f'[role="tab"][data-tab="{where}"]')
    tab.wait_for_selector('#jk-notice [data-action="retry"]')
    assert words.BROWSER["server_silent"] in tab.inner_text("#jk-notice")
    for sentence in (words.BROWSER["recordings_none"], LESSON_WORDS["lesson_missing"]):
        assert sentence not in tab.inner_text("body")
    heal()
    tab.click('#jk-notice [data-action="retry"]')
    tab.click('[role="tab"][data-tab="watch"]')
    tab.click(f'[role="tab"][data-tab="{where}"]')
    tab.wait_for_selector(content, state="attached")
    assert tab.is_hidden("#jk-notice")
