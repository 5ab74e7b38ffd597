"""What visitors' answers have read: one store, each visitor's part by itself, gone with the visitor or the model."""

import functools

import gradio as gr
import pytest
import starlette.requests

from app.page import handlers
from app.serving.runs import Runs, Visitor
from jakiro.trace import Header
from tests.app.asked import asking, events_of
from tests.app.conftest import ready_service
from tests.server.served import PATIENCE
from tests.support import tiny_generator

ADA, BOB = Visitor("tab of ada", "10.0.0.1"), Visitor("tab of bob", "10.0.0.1")


@functools.cache
def generator():
    return tiny_generator("summed")


@pytest.fixture
def service():
    return ready_service(generator())


def headers(service, runs, visitor, methods=("autoregressive", "jakiro")) -> list[Header]:
    """Asks, waits for the end, and returns the lanes' headers."""
    run = handlers.begin(service, runs, visitor, asking(length=6, methods=methods))
    assert events_of(run)[-1] == ("done", None, None)
    return [trace.header for trace in run.traces.values()]


def leave(service, runs, visitor) -> None:
    """Closes a tab, which knows its last answer."""
    handlers.forget(service, runs, [run.id for run in runs._of(visitor.session)][-1])


def known(*told: Header) -> list[bool]:
    """Of each lane, whether all of the prompt but its last token was known."""
    assert all(header.num_reused_tokens in (0, header.num_prompt_tokens - 1) for header in told)
    return [header.num_reused_tokens > 0 for header in told]


def test_a_question_asked_again_is_known_to_its_visitor_alone(service):
    runs, here = Runs(service.limits), generator().max_reusable_tokens > 0
    assert known(*headers(service, runs, ADA)) == [False, here]
    assert known(*headers(service, runs, BOB)) == [False, here], "behind the same address"
    assert known(*headers(service, runs, ADA)) == [here, here]
    twin = Visitor(ADA.session, "10.0.0.2")
    assert known(*headers(service, runs, twin)) == [False, here], "a program chose the same session elsewhere"


def by(path: str) -> Visitor:
    """The visitor whom a request to this address of Gradio's stands for."""
    about = {"type": "http", "method": "POST", "path": path, "headers": [], "client": ("10.0.0.9", 1)}
    asked = starlette.requests.Request(about | {"server": ("10.0.0.1", 80), "scheme": "http", "query_string": b""})
    return handlers.visitor_of(gr.Request(asked, session_hash="own"))


@pytest.mark.parametrize("visitor", [Visitor("10.0.0.9", "10.0.0.9"), by("/gradio_api/call/generate")])
def test_programs_whose_end_is_not_heard_keep_nothing(service, visitor):
    for _ in range(2):
        assert known(*headers(service, Runs(service.limits), visitor)) == [False, False]
    assert len(service.prefixes) == 0


def test_tabs_and_programs_with_an_open_connection_are_the_same_visitor_until_they_leave(service):
    runs, asks = Runs(service.limits), by("/gradio_api/queue/join")
    headers(service, runs, asks)
    assert len(service.prefixes) == (generator().max_reusable_tokens > 0)
    leave(service, runs, asks)
    assert len(service.prefixes) == 0


def test_who_leaves_during_an_answer_is_forgotten_too(service):
    runs = Runs(service.limits)
    run = handlers.begin(service, runs, ADA, asking(length=40))
    assert run.events.get(timeout=PATIENCE)[0] == "header"
    handlers.forget(service, runs, run.id)
    assert run.finished.wait(PATIENCE) and len(service.prefixes) == 0


def test_who_leaves_is_forgotten_and_others_are_not(service):
    runs, here = Runs(service.limits), generator().max_reusable_tokens > 0
    for visitor in (ADA, BOB):
        headers(service, runs, visitor)
    leave(service, runs, ADA)
    assert known(*headers(service, runs, ADA, ("jakiro",))) == [False]
    assert known(*headers(service, runs, BOB, ("jakiro",))) == [here]


def test_another_model_and_the_end_begin_with_nothing(service):
    runs = Runs(service.limits)
    headers(service, runs, ADA)
    seen = []

    def load():
        seen.append(service.prefixes.num_bytes)
        return generator()

    assert service.swap(load, "the same again")
    assert service.turns.wait_for(lambda: service.pair == "the same again" and service.stage is None, PATIENCE)
    assert seen == [0] and known(*headers(service, runs, ADA, ("jakiro",))) == [False]


def test_no_memory_for_it_keeps_nothing():
    service = ready_service(generator(), prefix_megabytes=0)
    for _ in range(2):
        assert known(*headers(service, Runs(service.limits), ADA)) == [False, False]
