"""How a start goes: steps that are timed and told as they begin, the age of the process, its most memory. No torch."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from jakiro.system import no_collection

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


_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)
# Seconds by step, and the step that runs
_seconds: ContextVar[dict[str, float] | None] = ContextVar("seconds", default=None)
_running: ContextVar[str | None] = ContextVar("running", default=None)


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
    """Yields seconds by step, right once the block has ended; a `timed` block inside it counts for itself alone."""
    seconds: dict[str, float] = {}
    counted, running = _seconds.set(seconds), _running.set(None)
    try:
        yield seconds
    finally:
        _seconds.reset(counted)
        _running.reset(running)


@contextmanager
def step(name: str) -> Iterator[None]:
    """A step of a start, one of `STEPS`; the seconds of a step within it are counted for the inner one alone."""
    seconds, before, start = _seconds.get(), _running.get(), time.perf_counter()
    token = _running.set(name)
    tell(name)
    try:
        yield
    finally:
        _running.reset(token)
        spent = time.perf_counter() - start
        for each, sign in ((name, 1), (before, -1)):
            if seconds is not None and each is not None:
                seconds[each] = seconds.get(each, 0.0) + sign * spent
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
    with no_collection():
        yield
        gc.freeze()


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
