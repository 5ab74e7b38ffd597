"""What runs an answer: the one interface between the queue of visitors and a model, here or elsewhere.

The page knows nothing else of models. `app/devices/local.py` runs one in this process; other implementations may run it
in another process or on other machines, so everything that crosses is plain data that can be pickled.
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
    """Adds an event to the traces by method."""
    kind, method, payload = event
    if kind == "header":
        traces[method] = Trace(payload)
    elif kind == "step":
        traces[method].steps.append(payload)
    elif method in traces and kind == "end":
        traces[method].end_reason = payload


class Device(Protocol):
    """Runs answers; the service loads it once in the background, then gives each place one `Asking` at a time."""

    @property
    def places(self) -> int:
        """How many answers it runs at once; it may change while the page is up, and is at least 1."""

    @property
    def metered(self) -> bool:
        """Whether what an answer takes is counted against its visitor, so that none should go on unread for long."""

    @property
    def status(self) -> dict:
        """What runs where, in the keys of `JakiroGenerator.status`; asked for only after `load`."""

    @property
    def costs(self) -> dict | None:
        """What passes cost on this device, as `DeviceProfile.to_dict` writes it; None where it is not known."""

    @property
    def environment(self) -> dict:
        """Where it computes, as `jakiro.bench.environment` writes it; asked for only after an answer."""

    def load(self, told: Callable[[str, float | None], None]) -> None:
        """Loads, in a thread of the service; returns when answers can be given.

        Args:
            told: called with LOADING or a step of a start (`jakiro.progress.STEPS`), and the share of it that is done
                from 0 to 1, None if unknown.

        Raises:
            Exception: what went wrong; its text is shown to visitors after "The model could not be loaded".
        """

    def answer(self, asking: Asking, halt: threading.Event, prefixes: OwnPrefixes | None = None) -> Iterator[Event]:
        """Runs one answer in the caller's thread: the headers of all methods, then steps, then an end for each method.

        It ends soon after `halt` is set, within a second even where no event is due, with ends that say "stopped"
        for methods that were not done. Closing the iterator frees the place as well, but gives no more events.
        A failure leaves the device fit for the next asking.

        Args:
            prefixes: what this visitor's earlier answers have read; of use only to a model in this process.

        Raises:
            ValueError: one sentence for the visitor. Anything else is taken for a defect and not shown in detail.
        """

    def close(self) -> None:
        """Gives back what it holds; called once, after the last answer."""
