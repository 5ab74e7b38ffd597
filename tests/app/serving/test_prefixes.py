"""The prefix cache of the page: one store with a separate part per visitor, cleared with the visitor or the model."""

import functools

import gradio as gr
import pytest
import starlette.requests

from app.page import handlers
from app.serving.runs import Runs, Visitor
from jakiro.trace import Header
from tests.app.answers import asking, events_of
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
    """Send a question, wait for the end of its answer, and return the headers of the lanes."""
    run = handlers.begin(service, runs, visitor, asking(length=6, methods=methods))
    assert events_of(run)[-1] == ("done", None, None)
    return [trace.header for trace in run.traces.values()]


def leave(service, runs, visitor) -> None:
    """Close the tab of a visitor; it sends the id of its last answer."""
    handlers.forget(service, runs, [run.id for run in runs._of(visitor.session)][-1])


def was_cached(*lane_headers: Header) -> list[bool]:
    """Return for each lane whether all prompt tokens but the last were cached."""
    assert all(header.num_reused_tokens in (0, header.num_prompt_tokens - 1) for header in lane_headers)
    return [header.num_reused_tokens > 0 for header in lane_headers]


def test_a_repeated_question_is_cached_for_its_own_visitor_only(service):
    runs, reuses = Runs(service.limits), generator().max_reusable_tokens > 0
    assert was_cached(*headers(service, runs, ADA)) == [False, reuses]
    assert was_cached(*headers(service, runs, BOB)) == [False, reuses], "behind the same address"
    assert was_cached(*headers(service, runs, ADA)) == [reuses, reuses]
    twin = Visitor(ADA.session, "10.0.0.2")
    assert was_cached(*headers(service, runs, twin)) == [False, reuses], "a program chose the same session elsewhere"


def by(path: str) -> Visitor:
    """Return the visitor of a request to this path of Gradio."""
    about = {"type": "http", "method": "POST", "path": path, "headers": [], "client": ("10.0.0.9", 1)}
    request = starlette.requests.Request(about | {"server": ("10.0.0.1", 80), "scheme": "http", "query_string": b""})
    return handlers.visitor_of(gr.Request(request, session_hash="own"))


@pytest.mark.parametrize("visitor", [Visitor("10.0.0.9", "10.0.0.9"), by("/gradio_api/call/generate")])
def test_programs_without_an_open_connection_have_no_cache(service, visitor):
    for _ in range(2):
        assert was_cached(*headers(service, Runs(service.limits), visitor)) == [False, False]
    assert len(service.prefixes) == 0


def test_tabs_and_programs_with_an_open_connection_are_the_same_visitor_until_they_leave(service):
    runs, asks = Runs(service.limits), by("/gradio_api/queue/join")
    headers(service, runs, asks)
    assert len(service.prefixes) == (generator().max_reusable_tokens > 0)
    leave(service, runs, asks)
    assert len(service.prefixes) == 0


def test_a_visitor_who_leaves_during_an_answer_has_no_cache(service):
    runs = Runs(service.limits)
    run = handlers.begin(service, runs, ADA, asking(length=40))
    assert run.events.get(timeout=PATIENCE)[0] == "header"
    handlers.forget(service, runs, run.id)
    assert run.finished.wait(PATIENCE) and len(service.prefixes) == 0


def test_the_cache_of_a_visitor_who_leaves_is_dropped_and_others_are_kept(service):
    runs, reuses = Runs(service.limits), generator().max_reusable_tokens > 0
    for visitor in (ADA, BOB):
        headers(service, runs, visitor)
    leave(service, runs, ADA)
    assert was_cached(*headers(service, runs, ADA, ("jakiro",))) == [False]
    assert was_cached(*headers(service, runs, BOB, ("jakiro",))) == [reuses]


def test_another_model_and_the_end_begin_with_nothing(service):
    runs = Runs(service.limits)
    headers(service, runs, ADA)
    seen = []

    def load():
        seen.append(service.prefixes.num_bytes)
        return generator()

    assert service.swap(load, "the same again")
    assert service.turns.wait_for(lambda: service.pair == "the same again" and service.stage is None, PATIENCE)
    assert seen == [0] and was_cached(*headers(service, runs, ADA, ("jakiro",))) == [False]


def test_no_memory_for_it_keeps_nothing():
    service = ready_service(generator(), prefix_megabytes=0)
    for _ in range(2):
        assert was_cached(*headers(service, Runs(service.limits), ADA)) == [False, False]
