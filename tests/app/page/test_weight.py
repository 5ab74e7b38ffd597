"""The size of the page in bytes, and the times of its updates on a simulated clock."""

import itertools
import queue
from types import SimpleNamespace

import pytest

from app.page import benchmark, handlers, lesson, web
from app.serving import worker

# The page's style, scripts and words without Gradio's. They include 21 kB for links, cards and pictures, 19 kB for the
# alternatives and branches of words, and 64 kB for the Markdown parser. Plotly and the code of the tab Benchmark are
# loaded after the first paint and do not count.
PAGE_BYTES = 440_000


def test_the_page_is_no_heavier_than_it_was():
    assert len((web.head() + lesson.head() + benchmark.head()).encode()) <= PAGE_BYTES


class Arrivals:
    """A queue of events that arrive at given milliseconds, with its own clock."""

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
    sent = [(arrivals.now, batch) for batch in worker.batches(arrivals, handlers.UPDATE_SECONDS)]
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(sent)]
    assert min(gaps[:-1]) >= handlers.UPDATE_SECONDS - 1e-9  # the end does not wait
    assert all(now - batch[0][2] / 1000 <= handlers.UPDATE_SECONDS + 1e-9 for now, batch in sent[:-1])
    moments = [payload for _, batch in sent for kind, _, payload in batch if kind == "step"]
    assert moments == list(range(0, 4000, every))
    if every > 1000 * handlers.UPDATE_SECONDS:
        assert all(now == batch[0][2] / 1000 for now, batch in sent[:-1])
