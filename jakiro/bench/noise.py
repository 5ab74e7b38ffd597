"""Signs that other programs disturbed a benchmark."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from jakiro.bench.runner import Run
from jakiro.drafters.registry import PLAIN
from jakiro.system import num_cores

# Share of the processor that other programs may use, and the middle half of the plain passes' times relative to their
# median. Above either, speedups differ visibly between runs.
MAX_OTHER_LOAD, MAX_SPREAD = 0.1, 0.2
# Quartiles of fewer answers vary too much by themselves
MIN_RUNS = 4


@dataclass(frozen=True, slots=True)
class ProcessorClock:
    """Processor seconds at one moment.

    Attributes:
        wall: seconds of a monotonic clock.
        all_programs: processor seconds of the machine.
        this_program: processor seconds of this process.
    """

    wall: float
    all_programs: float
    this_program: float

    @classmethod
    def now(cls) -> "ProcessorClock":
        """Read the clocks."""
        times = psutil.cpu_times()
        busy = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
        return cls(time.monotonic(), busy, time.process_time())


def other_load(start: ProcessorClock, end: ProcessorClock) -> float:
    """Return the share of this machine's cores that other programs used between two readings, 0 to 1."""
    seconds = (end.all_programs - start.all_programs) - (end.this_program - start.this_program)
    available = (end.wall - start.wall) * num_cores()
    return min(1.0, max(0.0, seconds / available)) if available > 0 else 0.0


def plain_spread(runs: Sequence[Run]) -> float | None:
    """Return (75 % − 25 %) ÷ median of the plain answers' mean pass; None for fewer than `MIN_RUNS` answers."""
    passes = [run.seconds / run.num_steps for run in runs if run.lane.method == PLAIN.name and run.num_steps]
    if len(passes) < MIN_RUNS:
        return None
    low, median, high = np.quantile(passes, [0.25, 0.5, 0.75])
    return float((high - low) / median)


def warnings(runs: Sequence[Run], load: float) -> list[str]:
    """Return messages for the reader of the tables.

    Args:
        runs: all answers of the benchmark.
        load: see `other_load`.
    """
    messages = []
    if load > MAX_OTHER_LOAD:
        messages.append(
            f"Other programs used {load:.0%} of the processor during the benchmark, so its speeds and speedups are "
            "unreliable; stop them and measure again."
        )
    spread = plain_spread(runs)
    if spread is not None and spread > MAX_SPREAD:
        messages.append(
            f"Plain passes varied by {spread:.0%} between answers (middle half ÷ median; up to {MAX_SPREAD:.0%} is "
            "usual), so speedups are unreliable; measure again on an idle machine."
        )
    return messages
