"""A step's own clock: what the device spent on drafting, on the target's pass and on everything else."""

import time

import torch


class StepClock:
    """Marks boundaries inside one step. On CUDA they are events on the stream, so that nothing has to wait for them."""

    def __init__(self, device: torch.device) -> None:
        self._events = device.type == "cuda"
        self._start = time.perf_counter()
        self._marks = [self._mark()]

    def _mark(self):
        if not self._events:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def mark(self) -> None:
        """Ends the current part and begins the next one."""
        self._marks.append(self._mark())

    def spans_ms(self) -> list[float]:
        """Milliseconds between consecutive marks; on CUDA call it after the step's device-to-host copy."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if self._events:
            return [before.elapsed_time(after) for before, after in pairs]
        return [1000 * (after - before) for before, after in pairs]

    def total_ms(self) -> float:
        """Wall-clock milliseconds since the clock was made."""
        return 1000 * (time.perf_counter() - self._start)
