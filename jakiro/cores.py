"""How many cores other programs leave to this one, by Linux's own counts.

Threads of one pass wait for each other many times. Where another program takes a core from them, two of them are slower
than one alone (docs/performance.md, *Waiting*). So decoding asks here before every step. Imports no torch.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Seconds over which cores are counted: the kernel counts in hundredths
WINDOW = 0.25
# Looks further apart than this say nothing about now
STALE = 1.0
# A core is given up when others take more than this of it, and taken back when they take less than that
TAKEN, FREE = 0.6, 0.4


class Look(NamedTuple):
    """Seconds up to a moment: of processor time of this process, of idle cores, and of all cores together."""

    at: float
    own: float
    idle: float
    total: float


class Cores:
    """How many threads have a core of their own, followed over time; several threads may ask.

    Args:
        number: cores that this process may run on.
        look: the counts up to now; None where the system does not count.
    """

    def __init__(self, number: int, look: Callable[[], Look | None]) -> None:
        self._number, self._look = number, look
        self._lock = threading.Lock()
        self._last: Look | None = None
        self._next_look = 0.0
        self._given_up = 0

    def threads(self, wanted: int) -> int:
        """So many threads, or fewer while other programs compute, but one at least."""
        if wanted < 2:
            return wanted
        with self._lock:
            if time.monotonic() >= self._next_look:
                self._count()
            return max(1, min(wanted, self._number - self._given_up))

    def _count(self) -> None:
        last, self._last = self._last, self._look()
        self._next_look = time.monotonic() + WINDOW
        if last is None or self._last is None or self._last.at - last.at > STALE:
            return
        taken = taken_between(last, self._last, self._number)
        at_least, at_most = (int(taken + 1 - bound) for bound in (TAKEN, FREE))
        self._given_up = max(at_least, min(self._given_up, at_most))


def taken_between(first: Look, second: Look, number: int) -> float:
    """Cores of so many that other programs took on average; 0 where the counts do not add up.

    What a host takes from a virtual machine counts as nobody's: fewer threads would not bring it back.
    """
    seconds = second.at - first.at
    if abs(second.total - first.total - number * seconds) > 0.25 * number * seconds:
        return 0.0
    left = (second.idle - first.idle) + (second.own - first.own)
    return max(0.0, number - left / seconds)


def look_at_kernel(cores: frozenset[int], counts: Path = Path("/proc/stat")) -> Look | None:
    """The counts of these cores up to now; None where there are none."""
    own, at = time.process_time(), time.monotonic()
    try:
        lines = counts.read_text(encoding="ascii").splitlines()
        ticks = [[int(word) for word in line.split()[1:9]] for line in lines if _core(line) in cores]
    except (OSError, ValueError):
        return None
    if len(ticks) != len(cores):
        return None
    second = os.sysconf("SC_CLK_TCK")
    # user, nice, system, idle, waiting for a disk, two kinds of interrupts, taken by the host
    idle = sum(each[3] + each[4] + each[7] for each in ticks)
    return Look(at, own, idle / second, sum(map(sum, ticks)) / second)


def _core(line: str) -> int | None:
    """The number of the core that a line of /proc/stat counts; None for other lines."""
    name = line.partition(" ")[0]
    return int(name[3:]) if name.startswith("cpu") and name[3:].isdigit() else None


def own_cores() -> Cores:
    """Of this process. Where the system does not say which cores those are, no thread is ever given up."""
    allowed = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
    return Cores(len(allowed) or (os.cpu_count() or 1), lambda: look_at_kernel(allowed) if allowed else None)
