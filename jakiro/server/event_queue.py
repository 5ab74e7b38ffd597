"""Events of an answer, passed from its thread to the server's event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

# (kind, method, payload): "prompt", "header", "step" and "end" as in a race; the last one is "done" or "error"
Event = tuple[str, object, object]


class EventQueue:
    """A queue that a thread writes and the coroutine that created it reads, up to "done" or "error"."""

    def __init__(self) -> None:
        self._loop, self._events = asyncio.get_running_loop(), asyncio.Queue()

    def put(self, event: Event) -> None:
        """Add an event; called by the thread."""
        self.call(self._events.put_nowait, event)

    def call(self, function: Callable, *arguments: object) -> None:
        """Call a function in the event loop, unless the loop is closed because the server has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            yield event
            if event[0] in ("done", "error"):
                return
