"""How a start goes: steps that are timed and told as they begin, the age of the process, its most memory. No torch."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

FETCH, CONVERT, COMPILE, READ, CHECK, CAPTURE, MEASURE = STEPS = (
    "fetch",
    "convert",
    "compile",
    "read",
    "check",
    "capture",
    "measure",
)

# (one of STEPS; the share of it that is done, 0 to 1, None if unknown; the bytes of the whole, where bytes are counted)
OnProgress = Callable[[str, float | None, int | None], None]


class Cancelled(Exception):
    """Raised by a listener to end the step that is reported; what is fetched already is kept."""


class _Clock:
    """Seconds by step; those of a step within a step are counted for the inner one alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = time.perf_counter()

    @property
    def step(self) -> str | None:
        return self._running[-1] if self._running else None

    def _count(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self.step] = self.seconds.get(self.step, 0.0) + now - self._since
        self._since = now

    def begin(self, step: str) -> None:
        self._count()
        self._running.append(step)

    def end(self) -> None:
        self._count()
        self._running.pop()


_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)
_clock: ContextVar[_Clock | None] = ContextVar("clock", default=None)


@contextmanager
def reporting_to(listener: OnProgress) -> Iterator[None]:
    """Inside this block, in this thread, `listener` is called for every step that begins and every share done."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Yields seconds by step, filled in while the block runs; a `timed` block inside it counts for itself alone."""
    clock = _Clock()
    token = _clock.set(clock)
    try:
        yield clock.seconds
    finally:
        _clock.reset(token)


@contextmanager
def step(name: str) -> Iterator[None]:
    """A step of a start, one of `STEPS`; the clock of a step around it stops meanwhile."""
    clock = _clock.get() or _Clock()
    before = clock.step
    clock.begin(name)
    tell(name)
    try:
        yield
    finally:
        clock.end()
        if before is not None:
            tell(before)


def tell(name: str, share: float | None = None, total_bytes: int | None = None) -> None:
    """Tells the listener, if there is one, how much of a step is done.

    Raises:
        Cancelled: the listener gave the step up.
    """
    listener = _listener.get()
    if listener is not None:
        listener(name, share, total_bytes)


@contextmanager
def importing() -> Iterator[None]:
    """Around large imports: no garbage is looked for meanwhile, nor ever again among what they made, which all stays.

    Looking took a fifth of the seconds that Gradio, torch and transformers take.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def process_seconds() -> float | None:
    """Seconds since this process began, to a hundredth; None where the system does not say (it does on Linux)."""
    try:
        # The name in brackets may hold spaces; what follows it begins with the third field
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
        seconds = uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        # A container may be shown an uptime of its own
        return seconds if seconds >= 0 else None
    except (OSError, ValueError, IndexError):
        return None


def most_memory() -> int | None:
    """The most bytes of memory that this process has held at once; None where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
