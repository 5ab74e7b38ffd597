"""Events from another process: failures arrive as sentences, and the reader does not block on a silent process."""

import threading

import pytest

from app.devices.remote import FAILED, follow, with_failures
from app.words import page as words
from tests.marks import rarely
from tests.server.served import PATIENCE, wait_until


def events_then(error: Exception):
    yield "header", "jakiro", None
    raise error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("Your prompt has 9 tokens."), "Your prompt has 9 tokens."),
        rarely(RuntimeError("CUDA out of memory."), words.OUT_OF_MEMORY),
        rarely(KeyError("x"), words.UNEXPECTED.format(kind="KeyError")),
    ],
)
def test_a_failure_crosses_as_the_last_event_and_is_raised_on_the_other_side(error, sentence):
    sent = list(with_failures(events_then(error)))
    assert sent == [("header", "jakiro", None), (FAILED, None, sentence)]
    with pytest.raises(ValueError) as caught:
        list(follow(lambda _: (event for event in sent), threading.Event()))
    assert str(caught.value) == sentence


def test_a_silent_other_side_is_not_waited_for_after_stop():
    may_end, closed = threading.Event(), threading.Event()

    def silent(reader_left):
        try:
            yield "header", "autoregressive", None
            yield "header", "jakiro", None
            yield "end", "autoregressive", "eos"
            may_end.wait(PATIENCE)
            yield "step", "jakiro", None
            yield "step", "jakiro", None
        finally:
            closed.set()

    halt, seen = threading.Event(), []
    for event in follow(silent, halt):
        seen.append(event)
        if event[0] == "end" and not halt.is_set():
            halt.set()
    assert not closed.is_set(), "the silence lasts on"
    assert seen[-1] == ("end", "jakiro", "stopped")
    may_end.set()
    assert closed.wait(PATIENCE)


def test_a_reader_that_leaves_ends_the_events_of_the_other_process():
    ends = []

    def endless(reader_left):
        while not reader_left.wait(0.01):
            yield "step", "jakiro", None
        ends.append(True)

    events = follow(endless, threading.Event())
    next(events)
    events.close()
    wait_until(lambda: ends)
