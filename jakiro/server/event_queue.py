"""An answer's events on their way from its thread to a server's loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

# (kind, method, payload): "header", "step" and "end" as in a race, then "done" or "error" as the last one
Event = tuple[str, object, object]


class Arriving:
    """A thread puts events; the coroutine that made this takes them, up to "done" or "error"."""

    def __init__(self) -> None:
        self._loop, self._events = asyncio.get_running_loop(), asyncio.Queue()

    def put(self, event: Event) -> None:
        self.call(self._events.put_nowait, event)

    def call(self, function: Callable, *arguments: object) -> None:
        """Calls a function in the loop, unless the server has ended and nobody waits any more."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            yield event
            if event[0] in ("done", "error"):
                return
