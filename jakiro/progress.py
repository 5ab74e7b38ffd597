"""Progress of a start: timed steps and their listener, the age of the process, and its memory. Imports no torch."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from jakiro.system import no_collection

STEPS = ("fetch", "convert", "compile", "read", "check", "capture", "measure")
FETCH, CONVERT, COMPILE, READ, CHECK, CAPTURE, MEASURE = STEPS

# (one of STEPS; the finished share from 0 to 1, None if unknown; the total number of bytes, if bytes are counted)
OnProgress = Callable[[str, float | None, int | None], None]


class Cancelled(Exception):
    """Raised by a listener to end the current step; downloaded bytes are kept."""


_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)
# Seconds by step, and the current step
_seconds: ContextVar[dict[str, float] | None] = ContextVar("seconds", default=None)
_current: ContextVar[str | None] = ContextVar("current", default=None)


@contextmanager
def reporting_to(listener: OnProgress) -> Iterator[None]:
    """Call `listener` for every step that starts and every finished share, inside the block and in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Yield seconds by step, complete when the block ends; steps of a nested `timed` block are not included."""
    seconds: dict[str, float] = {}
    seconds_token, current_token = _seconds.set(seconds), _current.set(None)
    try:
        yield seconds
    finally:
        _seconds.reset(seconds_token)
        _current.reset(current_token)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Report and time a step, one of `STEPS`; the time of a nested step is counted for the nested one only."""
    seconds, outer, start = _seconds.get(), _current.get(), time.perf_counter()
    token = _current.set(name)
    tell(name)
    try:
        yield
    finally:
        _current.reset(token)
        duration = time.perf_counter() - start
        for step_name, sign in ((name, 1), (outer, -1)):
            if seconds is not None and step_name is not None:
                seconds[step_name] = seconds.get(step_name, 0.0) + sign * duration
        if outer is not None:
            tell(outer)


def tell(name: str, share: float | None = None, total_bytes: int | None = None) -> None:
    """Report the finished share of a step to the listener, if there is one.

    Raises:
        Cancelled: the listener ends the step.
    """
    listener = _listener.get()
    if listener is not None:
        listener(name, share, total_bytes)


@contextmanager
def importing() -> Iterator[None]:
    """Disable garbage collection during large imports, and exclude the imported objects from it permanently.

    Collections were a fifth of the time for importing Gradio, torch and transformers.
    """
    with no_collection():
        yield
        gc.freeze()


def process_seconds() -> float | None:
    """Return the seconds since this process started, to a hundredth; None if the system (not Linux) has no record."""
    try:
        # The third field follows the name in parentheses, which may contain spaces
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
        seconds = uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        # A container may have an uptime of its own
        return seconds if seconds >= 0 else None
    except (OSError, ValueError, IndexError):
        return None


def most_memory() -> int | None:
    """Return the peak memory of this process in bytes; None if the system has no record."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
