"""What a live answer weighs on its way to the browser, and when it goes, without a clock: 500 steps of 24 nodes."""

import itertools
import queue
from types import SimpleNamespace

import orjson
import pytest
from gradio.server_messages import ProcessCompletedMessage, ProcessGeneratingMessage
from gradio.utils import diff

from app.page import benchmark, handlers, lesson, web
from app.serving import worker
from app.serving.packing import Packer
from jakiro.config import SamplingParams, TreeConfig
from tests.app.fake import FakeGenerator

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
NUM_STEPS, NODES = 500, 24
MOST_BYTES = 6 * 1024
# What a visitor loads once, before Gradio's own: style, scripts and words, with the plots' buttons, readouts and files,
# 21 kB of links, cards and pictures, 19 kB of a word's alternatives and branches, and 64 kB of the Markdown parser;
# Plotly and the tab Benchmark's code come after the first paint
PAGE_BYTES = 440_000


class Events(list):
    put = list.append


class Finished:
    """A run whose events have all come."""

    def __init__(self, events: list[tuple]) -> None:
        self.id, self.events, self.ticks, self.packer = "0" * 32, Events(events), [], Packer()


def answer() -> list[tuple]:
    """The events of an answer of 500 steps whose every word is new, so that no token is known before."""
    pieces = [b" token%04d" % number for number in range(4 * NUM_STEPS)]
    params = SamplingParams(max_new_tokens=len(pieces))
    stream = FakeGenerator(pieces).stream(QUESTION, params, tree=TreeConfig(nodes=NODES, depth=5))
    steps = [next(stream) for _ in range(NUM_STEPS)]
    assert all(len(step.nodes) == NODES for step in steps)
    events = [("header", "jakiro", stream.trace.header), *(("step", "jakiro", step) for step in steps)]
    return [*events, ("end", "jakiro", "length"), ("done", None, None)]


def sizes_of(values: list[dict]) -> list[int]:
    """Bytes of each update as Gradio sends it: the first value, then differences, and the last value once more."""
    output = {
        "is_generating": True, "duration": 0.09968113899230957, "average_duration": 0.09975739842966984,
        "render_config": None, "changed_state_ids": [], "used_cache": None,
    }  # fmt: skip
    sent = [values[0], *(diff(*pair) for pair in itertools.pairwise(values))]
    messages = [ProcessGeneratingMessage(output=output | {"data": [data]}, success=True) for data in sent]
    messages.append(ProcessCompletedMessage(output=output | {"data": [values[-1]]}, success=True))
    for message in messages:
        message.event_id = "0" * 32
    return [len(b"data: " + orjson.dumps(message.model_dump()) + b"\n\n") for message in messages]


@pytest.mark.parametrize("steps_at_once", [1, 2, 3])
def test_updates_weigh_six_kilobytes_or_less(monkeypatch, steps_at_once):
    """Steps that come every 30 ms travel three at a time, those of 24 nodes from a model on a CPU two at a time."""

    def batched(events, _):
        return [events[start : start + steps_at_once] for start in range(0, len(events), steps_at_once)]

    monkeypatch.setattr(handlers, "batches", batched)
    values = list(handlers._updates(Finished(answer()), handlers.UPDATE_SECONDS, 0))
    sizes = sizes_of(values)
    assert len(values) >= NUM_STEPS // steps_at_once
    assert sum(sizes) / len(values) <= MOST_BYTES
    # Neither the first nor the last update, nor its repetition, says again what was said
    assert max(sizes) <= (MOST_BYTES if steps_at_once < 3 else 1.25 * MOST_BYTES)
    assert sum(sizes[-2:]) <= MOST_BYTES / 4


def test_the_page_is_no_heavier_than_it_was():
    assert len((web.head() + lesson.head() + benchmark.head()).encode()) <= PAGE_BYTES


class Arrivals:
    """Events that come at given milliseconds, and the clock by which they come."""

    def __init__(self, moments: list[int]) -> None:
        self.now, self.left = 0.0, [(moment / 1000, ("step", "jakiro", moment)) for moment in moments]
        self.left.append((self.left[-1][0], ("done", None, None)))

    def get(self, timeout: float = float("inf")):
        if self.left[0][0] > self.now + timeout:
            self.now += timeout
            raise queue.Empty
        moment, event = self.left.pop(0)
        self.now = max(self.now, moment)
        return event


@pytest.mark.parametrize("every", [30, 120])
def test_updates_go_out_at_once_but_not_twice_within_their_time(monkeypatch, every):
    arrivals = Arrivals(list(range(0, 4000, every)))
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: arrivals.now))
    given = [(arrivals.now, batch) for batch in worker.batches(arrivals, handlers.UPDATE_SECONDS)]
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(given)]
    assert min(gaps[:-1]) >= handlers.UPDATE_SECONDS - 1e-9  # the end does not wait
    assert all(now - batch[0][2] / 1000 <= handlers.UPDATE_SECONDS + 1e-9 for now, batch in given[:-1])
    moments = [payload for _, batch in given for kind, _, payload in batch if kind == "step"]
    assert moments == list(range(0, 4000, every))
    if every > 1000 * handlers.UPDATE_SECONDS:
        assert all(now == batch[0][2] / 1000 for now, batch in given[:-1])
