"""The relay between a page and its workers, with a stub of Ray: an answer ends after any error."""

import sys
from types import ModuleType
from unittest.mock import Mock

import pytest

from app.devices.remote import FAILED
from app.words import page as words
from tests.server.served import run_apart

HEADER, STEP = ("header", "jakiro", None), ("step", "jakiro", "a step")


class RayError(Exception):
    """A stub of Ray's exception."""


async def response(events: list, error: Exception | None):
    """Yield the events of an answer, and raise the error that ends it."""
    for event in events:
        yield event
    if error is not None:
        raise error


@pytest.fixture
def relay_answer(monkeypatch):
    """Yield a function that returns all events of an answer whose attempts have these responses."""
    ray, serve, exceptions = (ModuleType(name) for name in ("ray", "ray.serve", "ray.exceptions"))
    serve.deployment = lambda **_: lambda worker: worker
    exceptions.RayError = RayError
    ray.serve, ray.exceptions = serve, exceptions
    for module in (ray, serve, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "app.devices.ray_workers", raising=False)
    from app.devices.ray_workers import Relay

    async def read(responses: list) -> list:
        # Each call of the application's handle returns the next prepared response
        handle = Mock()
        handle.options.return_value = handle.answer = handle
        handle.remote.side_effect = responses
        serve.get_app_handle = lambda _: handle
        relay, events = Relay(), []
        await relay.open("key", None)
        for _ in range(20):
            events += await relay.take("key")
            if events and events[-1] is None:
                await relay.close("key")
                return events
        raise AssertionError(f"no end after {events}")

    yield lambda *responses: run_apart(read(list(responses)))
    sys.modules.pop("app.devices.ray_workers", None)


def test_all_events_of_an_answer_arrive_with_its_end(relay_answer):
    assert relay_answer(response([HEADER, STEP], None)) == [HEADER, STEP, None]


def test_a_worker_lost_before_its_first_step_is_replaced_and_headers_are_sent_once(relay_answer):
    assert relay_answer(response([HEADER], RayError()), response([HEADER, STEP], None)) == [HEADER, STEP, None]


@pytest.mark.parametrize("error", [RayError(), RuntimeError("the deployment is unavailable")])
def test_a_worker_lost_later_and_any_other_error_end_the_answer_with_a_sentence(relay_answer, error):
    assert relay_answer(response([HEADER, STEP], error)) == [HEADER, STEP, (FAILED, None, words.RAY_WORKER_LOST), None]
