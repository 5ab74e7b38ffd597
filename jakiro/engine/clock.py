"""A step's own clock: what the device spent on drafting, on the target's pass and on everything else."""

import time
from itertools import pairwise

import torch


class StepClock:
    """Marks boundaries inside one step.

    On CUDA all marks but the last are events on the stream, so that nothing has to wait for them.
    """

    def __init__(self, device: torch.device) -> None:
        self._events, self._device = device.type == "cuda", device
        self._start = self._last = time.perf_counter()
        self._marks = [self._mark()]

    def _mark(self):
        if not self._events:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def mark(self) -> None:
        """Ends the current part and begins the next one."""
        self._last = time.perf_counter()
        self._marks.append(self._mark())

    def spans_ms(self) -> list[float]:
        """Milliseconds between consecutive marks; their sum is the host's time from the first to the last.

        On CUDA call it after the step's device-to-host copy, with the last mark after that copy: the events before it
        have happened then, and the last span is the rest of the host's time.
        """
        if self._events:
            events = self._marks[:-1]
            spans = [before.elapsed_time(after) for before, after in pairwise(events)]
            return [*spans, max(1000 * (self._last - self._start) - sum(spans), 0.0)]
        return [1000 * (after - before) for before, after in pairwise(self._marks)]

    def since_mark_ms(self) -> float:
        """The host's milliseconds since the last mark."""
        return 1000 * (time.perf_counter() - self._last)

    def total_ms(self) -> float:
        """Wall-clock milliseconds since the clock was made."""
        return 1000 * (time.perf_counter() - self._start)
