"""A step's own clock: the time spent on drafting, on the target's pass and on everything else."""

import time
from itertools import pairwise

import torch


class StepClock:
    """Milliseconds of one step by part: "draft", "verify" and "other".

    On CUDA the host goes on before the device is done. There, drafting and the target's pass are timed by events on the
    stream up to the first `other`, which ends after the step's device-to-host copy; the host's clock times the rest.
    A draft that began ahead of its step runs while the host is at other work: its clock pauses there, all of the draft
    counts as drafting, and what of it was over when the step went on was not waited for.
    """

    def __init__(self, device: torch.device) -> None:
        self.ms = {"draft": 0.0, "verify": 0.0, "other": 0.0}
        self._last = time.perf_counter()
        # (part, event at its end), the step's start first; empty where the host's clock times everything
        self._events = [("", _event(device))] if device.type == "cuda" else []
        self._device = device
        # Of the host's milliseconds: those before a pause, and those of it
        self._before_ms = self._paused_ms = 0.0

    def pause(self) -> None:
        """Stops counting until `resume`."""
        now = time.perf_counter()
        self._before_ms += 1000 * (now - self._last)
        self._last = now

    def resume(self) -> None:
        now = time.perf_counter()
        self._paused_ms, self._last = 1000 * (now - self._last), now
        if self._events:
            self._events.append(("", _event(self._device)))

    def end(self, part: str) -> None:
        """Counts the time since the end of the part before as this part's."""
        if self._events and part != "other":
            self._events.append((part, _event(self._device)))
            return
        now = time.perf_counter()
        ms, self._last, self._before_ms = self._before_ms + 1000 * (now - self._last), now, 0.0
        for (_, start), (name, end) in pairwise(self._events):
            if not name:
                # The device did nothing, or what came before is counted
                self._paused_ms = 0.0
                continue
            span = start.elapsed_time(end)
            self.ms[name] += span
            ms -= max(span - self._paused_ms, 0.0)
        self._events = []
        self.ms[part] += max(ms, 0.0)


def _event(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event
