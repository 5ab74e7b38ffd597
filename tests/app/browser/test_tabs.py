"""Many tabs share the six connections of a browser to a server: which tab uses one, and the message while it waits."""

import re
import time

import pytest

from app.words import page as words
from tests.app.conftest import DESKTOP, FORM_DRAWN, send, served_slow, wait_until_finished
from tests.server.served import PATIENCE

pytestmark = pytest.mark.browser
# Connections of a browser to one server over HTTP/1.1
CONNECTIONS = 6
# Gradio's responses that last as long as the client reads
STREAMS = re.compile("/queue/data|/heartbeat/")
# All tabs of a headless browser are visible: set the visibility and dispatch the event of a change
SHOWN = """shown => {
    for (const [name, value] of [["hidden", !shown], ["visibilityState", shown ? "visible" : "hidden"]]) {
        Object.defineProperty(document, name, { value, configurable: true });
    }
    document.dispatchEvent(new Event("visibilitychange"));
}"""
LENGTH = "Jakiro.moves.state.turns.at(-1)?.main?.tokens.length || 0"


@pytest.fixture
def new_tab(browser):
    """Return a function that opens tabs in their own context, with the open streams of each in `streams`."""
    context = browser.new_context(viewport=DESKTOP, reduced_motion="reduce")

    def open_at(address: str):
        tab, tab_streams = context.new_page(), set()
        tab.streams = tab_streams
        tab.on("request", lambda request: STREAMS.search(request.url) and tab_streams.add(request))
        for end in ("requestfinished", "requestfailed"):
            tab.on(end, lambda request: tab_streams.discard(request))
        tab.set_default_timeout(1000 * PATIENCE)
        tab.goto(address)
        tab.wait_for_selector("#jk-chip.ready")
        tab.wait_for_function(FORM_DRAWN)
        return tab

    yield open_at
    context.close()


@pytest.fixture
def slow():
    with served_slow() as (generator, blocks, address):
        yield blocks, address, generator


def wait_in(tab, condition) -> None:
    """Wait for a condition while the tab's events are dispatched."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        tab.wait_for_timeout(50)


def wait_for_streams(tab, count: int) -> None:
    wait_in(tab, lambda: len(tab.streams) == count)


@pytest.mark.rare
def test_seven_tabs_open_beside_each_other(new_tab, fake_address):
    """An idle tab once used a stream, and the seventh tab stayed at *Loading…*."""
    for _ in range(CONNECTIONS + 1):
        assert not new_tab(fake_address).streams


@pytest.mark.rare
def test_a_hidden_tab_gives_its_stream_back_and_loses_nothing_of_its_answer(new_tab, slow):
    tab = new_tab(slow[1])
    send(tab, "Hidden?")
    tab.wait_for_function(f"({LENGTH}) > 4")
    assert len(tab.streams) == 1
    tab.evaluate(SHOWN, False)
    wait_for_streams(tab, 0)
    num_tokens = tab.evaluate(LENGTH)
    run = slow[0].runs.find(tab.evaluate("Jakiro.moves.state.run.id"))
    steps = len(run.traces["jakiro"].steps)
    wait_in(tab, lambda: len(run.traces["jakiro"].steps) >= steps + 4)
    assert tab.evaluate(LENGTH) == num_tokens and not tab.streams and not run.finished.is_set(), "it goes on unseen"
    tab.evaluate(SHOWN, True)
    tab.wait_for_function(f"({LENGTH}) > {num_tokens + 4}")
    assert tab.is_hidden("#jk-notice") and len(tab.streams) == 1
    tab.evaluate(SHOWN, False)
    wait_for_streams(tab, 0)
    slow[2].pace = 0.1
    assert run.finished.wait(PATIENCE)
    tab.evaluate(SHOWN, True)
    wait_until_finished(tab)
    texts = tab.evaluate("Object.entries(Jakiro.moves.state.run.lanes).map(([name, lane]) =>"
                         " [name, Jakiro.textOf(lane, lane.tokens.length), lane.endReason])")  # fmt: skip
    assert len(texts) == 2
    for name, text, end in texts:
        assert (text, end) == (run.traces[name].text, run.traces[name].end_reason)
    assert tab.evaluate("Jakiro.moves.state.turns.length") == 1 and tab.is_hidden("#jk-notice")


@pytest.mark.rare
def test_a_seventh_question_without_a_connection_has_a_message_and_is_answered_when_one_is_free(new_tab, slow):
    tabs = [new_tab(slow[1]) for _ in range(CONNECTIONS + 1)]
    *tabs, seventh = tabs
    slow[2].gate.clear()
    for number, tab in enumerate(tabs):
        send(tab, f"Question {number}?")
        wait_for_streams(tab, 1)
    send(seventh, "The seventh?")
    seventh.wait_for_selector(f'.answer-pane .waiting:has-text("{words.BROWSER["held_up"]}")')
    assert seventh.is_hidden("#jk-notice"), "nothing is lost"
    slow[2].gate.set()
    for tab in tabs:
        # On the server: Stop would need a connection
        run_id = tab.wait_for_function("Jakiro.moves.state.turns[0]?.id").json_value()
        wait_in(tab, lambda run_id=run_id: slow[0].runs.visitor(run_id))
        slow[0].runs.stop(slow[0].runs.visitor(run_id).session)
    seventh.wait_for_function(f"({LENGTH}) > 4")
    assert seventh.evaluate("Jakiro.moves.state.run.question") == "The seventh?"


def test_a_closed_tab_tells_the_server_without_a_stream(new_tab, slow):
    tab = new_tab(slow[1])
    send(tab, "Closed?")
    tab.wait_for_function(f"({LENGTH}) > 4")
    run = slow[0].runs.find(tab.evaluate("Jakiro.moves.state.run.id"))
    tab.evaluate(SHOWN, False)
    wait_for_streams(tab, 0)
    assert run.seconds_alone == 0
    tab.goto("about:blank")
    wait_in(tab, lambda: run.seconds_alone > 0)
