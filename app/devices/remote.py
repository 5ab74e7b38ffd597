"""Events of an answer from another process: failures become plain data, and the wait can be ended.

For devices that run answers elsewhere. Exceptions may be lost or lose their text on the way, so they become events. A
wait for the other side cannot be interrupted, so it happens in its own thread.
"""

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator

from app.devices.base import Event
from app.words.errors import sentence_of
from jakiro.system import release_memory

# ("failed", None, sentence): the last event of an answer that could not be finished
FAILED = "failed"
_LOOK_AROUND_SECONDS = 0.1


def with_failures(events: Iterator[Event]) -> Iterator[Event]:
    """Yield the events; an exception becomes a last event with its sentence, which can be sent to another process."""
    try:
        yield from events
        return
    except Exception as error:  # noqa: BLE001 - no exception may have to be pickled; the page shows a sentence
        sentence = sentence_of(error)
    release_memory()
    yield FAILED, None, sentence


def follow(open_events: Callable[[threading.Event], Iterator[Event]], halt: threading.Event) -> Iterator[Event]:
    """Yield the events of another process; end soon after `halt`, even if the other process hangs.

    Args:
        open_events: returns the events until its argument, an event, is set; called, read and closed in one thread with
            the caller's context.
        halt: set when the rest is not needed; lanes with a header then end with "stopped".

    Raises:
        ValueError: the other side's sentence.
    """
    arrived: queue.SimpleQueue = queue.SimpleQueue()
    reader_left = threading.Event()

    def read() -> None:
        try:
            events = open_events(reader_left)
            try:
                for event in events:
                    arrived.put(event)
                    if reader_left.is_set():
                        break
            finally:
                events.close()
            arrived.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that follows, which waits for it
            arrived.put(error)

    threading.Thread(target=contextvars.copy_context().run, args=(read,), name="follow-answer", daemon=True).start()
    running: list[str] = []
    try:
        while not halt.is_set():
            try:
                event = arrived.get(timeout=_LOOK_AROUND_SECONDS)
            except queue.Empty:
                continue
            if event is None:
                return
            if isinstance(event, BaseException):
                raise event
            kind, method, payload = event
            if kind == FAILED:
                raise ValueError(payload)
            if kind == "header":
                running.append(method)
            elif kind == "end":
                running.remove(method)
            yield event
        for method in running:
            yield "end", method, "stopped"
    finally:
        reader_left.set()
