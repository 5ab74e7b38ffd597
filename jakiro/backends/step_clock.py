"""Clocks of one step: time of drafting, of the target's pass and of everything else."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StepClock:
    """Wall-clock times of a step, for a device such as the CPU whose operations block the host until they are done.

    Attributes:
        draft_ms, verify_ms: milliseconds of drafting and of the target's pass so far, named as in `Step`. `other_ms`
            includes the comparison with the target's choices, `BackendSession.verify`.
    """

    def __init__(self) -> None:
        self.draft_ms = self.verify_ms = 0.0
        # Drafting on the device while this clock was paused; `draft_ms` contains it, the host's elapsed time does not
        self._overlapped_ms = 0.0
        self._start = self._paused_at = time.perf_counter()

    @property
    def other_ms(self) -> float:
        """Milliseconds since the clock was made, without pauses, drafting and the target's pass."""
        elapsed_ms = 1000 * (time.perf_counter() - self._start)
        return max(elapsed_ms + self._overlapped_ms - self.draft_ms - self.verify_ms, 0.0)

    @contextmanager
    def draft(self) -> Iterator[None]:
        """Count the time of the block as drafting."""
        start = time.perf_counter()
        yield
        self.draft_ms += 1000 * (time.perf_counter() - start)

    @contextmanager
    def target_pass(self) -> Iterator[None]:
        """Count the time of the block as the target's pass."""
        start = time.perf_counter()
        yield
        self.verify_ms += 1000 * (time.perf_counter() - start)

    def pause(self) -> None:
        """Stop counting until `resume`."""
        self._paused_at = time.perf_counter()

    def resume(self) -> None:
        """Continue counting."""
        self._start += time.perf_counter() - self._paused_at

    def read_events(self) -> None:
        """Read the device's timers; call after the step's device-to-host copy."""


class CudaStepClock(StepClock):
    """Times blocks by events on the stream, because the host continues before the device is done.

    After `read_events` the host's clock times all blocks: reading further events would block the host once more.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        # Start and end of each block; None after `read_events`
        self._draft_events: list[tuple[torch.cuda.Event, torch.cuda.Event]] | None = []
        self._pass_events: list[tuple[torch.cuda.Event, torch.cuda.Event]] | None = []
        self._paused_ms = 0.0

    @contextmanager
    def draft(self) -> Iterator[None]:
        if self._draft_events is None:
            with super().draft():
                yield
            return
        start = self._record_event()
        yield
        self._draft_events.append((start, self._record_event()))

    @contextmanager
    def target_pass(self) -> Iterator[None]:
        start = self._record_event()
        yield
        self._pass_events.append((start, self._record_event()))

    def resume(self) -> None:
        self._paused_ms += 1000 * (time.perf_counter() - self._paused_at)
        super().resume()

    def read_events(self) -> None:
        self.draft_ms = sum(start.elapsed_time(end) for start, end in self._draft_events)
        self.verify_ms = sum(start.elapsed_time(end) for start, end in self._pass_events)
        self._overlapped_ms = min(self.draft_ms, self._paused_ms)
        self._draft_events = self._pass_events = None

    def _record_event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


def start_clock(device: torch.device) -> StepClock:
    """Return a running clock for a step on this device."""
    return CudaStepClock(device) if device.type == "cuda" else StepClock()
