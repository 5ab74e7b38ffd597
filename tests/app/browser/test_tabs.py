"""Many tabs of one browser, which has six connections to a server for all: who holds one, and what waits says."""

import re

import pytest

from app.words import page as words
from tests.app.conftest import DESKTOP, serve
from tests.app.fake import FakeGenerator, default_answer

pytestmark = pytest.mark.browser
# What a browser opens to one server by HTTP/1.1
CONNECTIONS = 6
# What Gradio answers for as long as it is read
STREAMS = re.compile("/queue/data|/heartbeat/")
LENGTH = "Jakiro.moves.state.turns.at(-1)?.main?.tokens.length || 0"


@pytest.fixture
def new_tab(browser):
    """Opens tabs of a browser of its own, each with the number of its open streams in `streams`."""
    context = browser.new_context(viewport=DESKTOP, reduced_motion="reduce")

    def open_at(address: str):
        tab, tab_streams = context.new_page(), set()
        tab.streams = tab_streams
        tab.on("request", lambda request: STREAMS.search(request.url) and tab_streams.add(request))
        for end in ("requestfinished", "requestfailed"):
            tab.on(end, lambda request: tab_streams.discard(request))
        tab.set_default_timeout(30_000)
        tab.goto(address)
        tab.wait_for_selector("#jk-chip.ready")
        return tab

    yield open_at
    context.close()


@pytest.fixture
def slow():
    """A page with room for all of them, whose answers take some ten seconds."""
    generator = FakeGenerator(default_answer() * 4, pace=1.0)
    blocks, address = serve(lambda: generator)
    yield blocks, address, generator
    generator.gate.set()
    blocks.close()


def send(tab, question: str) -> None:
    tab.fill("#question textarea", question)
    tab.click("#ask")


def stop_all(runs, tabs) -> None:
    """Ends tabs' answers on the server: Stop would need a connection."""
    for tab in tabs:
        runs.stop(runs.visitor(tab.evaluate("Jakiro.moves.state.turns[0].id")).session)


def wait_for_streams(tab, count: int) -> None:
    for _ in range(200):
        if len(tab.streams) == count:
            return
        tab.wait_for_timeout(50)
    raise AssertionError(f"{len(tab.streams)} streams, and not {count}")


def test_seven_tabs_open_beside_each_other(new_tab, fake_address):
    """Each once held a stream while nothing was asked, and the seventh stayed at *Loading…*."""
    for _ in range(CONNECTIONS + 1):
        assert not new_tab(fake_address).streams


def test_a_seventh_question_that_finds_no_connection_says_so_and_is_answered_when_one_is_free(new_tab, slow):
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
    stop_all(slow[0].runs, tabs)
    seventh.wait_for_function(f"({LENGTH}) > 4")
    assert seventh.evaluate("Jakiro.moves.state.run.question") == "The seventh?"


def test_a_closed_tab_tells_the_server(new_tab, slow):
    tab = new_tab(slow[1])
    send(tab, "Closed?")
    tab.wait_for_function(f"({LENGTH}) > 4")
    run = slow[0].runs.find(tab.evaluate("Jakiro.moves.state.run.id"))
    assert run.seconds_alone == 0
    tab.goto("about:blank")
    for _ in range(100):
        if run.seconds_alone > 0:
            return
        tab.wait_for_timeout(50)
    raise AssertionError("the server was not told")
