"""The interface between the queue of visitors and a model, here or elsewhere.

The page uses models only through this interface. `app/devices/local.py` runs one in this process; other
implementations may use another process or other machines, so all arguments and results are plain data that can be
pickled.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from app.asking import Asking
from jakiro.decode.prefix_cache import OwnPrefixes
from jakiro.trace import Trace

# ("header", method, Header), ("step", method, Step) or ("end", method, reason); the reason is a trace's end_reason.
# Before them ("prompt", method, PromptScores), if `Asking.echo` requests it
Event = tuple[str, str, object]
LOADING = "loading"


def keep(event: Event, traces: dict[str, Trace]) -> None:
    """Add an event to the traces by method."""
    kind, method, payload = event
    if kind == "header":
        traces[method] = Trace(payload)
    elif kind == "step":
        traces[method].steps.append(payload)
    elif method in traces and kind == "end":
        traces[method].end_reason = payload


class Device(Protocol):
    """Runs answers; the service loads it once in the background, then assigns each place one `Asking` at a time."""

    @property
    def places(self) -> int:
        """Return the number of answers that run at once, at least 1; it may change while the page is running."""

    @property
    def metered(self) -> bool:
        """Return whether an answer uses its visitor's quota, so that unread answers should end soon."""

    @property
    def status(self) -> dict:
        """Return the device status; same keys as `JakiroGenerator.status`. Call after `load`."""

    @property
    def costs(self) -> dict | None:
        """Return the measured costs of passes in the format of `DeviceProfile.to_dict`; None if unknown."""

    @property
    def environment(self) -> dict:
        """Return the environment in the format of `jakiro.bench.environment`. Call after an answer."""

    def load(self, report: Callable[[str, float | None], None]) -> None:
        """Load, in a thread of the service; return when answers are possible.

        Args:
            report: callback with LOADING or a step of a start (`jakiro.progress.STEPS`), and the completed share from 0
                to 1, or None if unknown.

        Raises:
            Exception: loading failed; visitors read its text after "The model could not be loaded".
        """

    def answer(self, asking: Asking, halt: threading.Event, prefixes: OwnPrefixes | None = None) -> Iterator[Event]:
        """Run one answer in the caller's thread: yield the headers of all methods, then steps, then an end for each.

        It ends within a second after `halt` is set, also if no event is due; methods that were not done end with
        "stopped". Closing the iterator frees the place too, but yields no more events. After a failure the device
        can run the next request.

        Args:
            prefixes: the visitor's prefix cache; used only by a model in this process.

        Raises:
            ValueError: one sentence for the visitor. Other exceptions are defects and are not shown in detail.
        """

    def close(self) -> None:
        """Release all resources; called once, after the last answer."""
