"""Answers on one generator, one after the other in the order of asking."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from math import ceil
from pathlib import Path

from jakiro.decode.prefix_cache import PrefixStore
from jakiro.generator import JakiroGenerator
from jakiro.server.application import Caller
from jakiro.server.errors import Refusal
from jakiro.server.event_queue import Arriving, Event
from jakiro.server.request import Wish
from jakiro.system import is_out_of_memory

QUEUE_LENGTH = 64


class OneGenerator:
    """What the command `serve` runs answers on, see `Backend`.

    Args:
        queue_length: answers that may wait.
    """

    def __init__(self, generator: JakiroGenerator, queue_length: int = QUEUE_LENGTH) -> None:
        self._generator, self._queue_length, self.num_waiting = generator, queue_length, 0
        self.model, self.most_tokens = Path(generator.target.name).name, generator.max_prompt_tokens
        self._prefixes, self._turn = PrefixStore(), asyncio.Lock()
        # Of the latest answer
        self._seconds = 1.0

    @property
    def notices(self) -> list[str]:
        """Messages for the person who runs the server, in addition to the generator's."""
        if self._generator.status["head"] or self._generator.notices:
            return []
        return [f"No draft head is loaded; requests are answered with {self._generator.usual.name}."]

    def _runnable(self, name: str | None) -> str | None:
        """Return the requested method, or one that runs without a head if none is loaded; see `Methods`."""
        if name is None or self._generator.status["head"]:
            return name
        return name if name in self._generator.known_methods.runnable_without_head([name]) else None

    @property
    def is_answering(self) -> bool:
        return self._turn.locked()

    async def answer(self, wish: Wish, caller: Caller) -> AsyncIterator[Event]:
        if self.is_answering and self.num_waiting >= self._queue_length:
            raise Refusal(429, "The queue is full; ask again later.", seconds=max(1, ceil(self._seconds)))
        self.num_waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.num_waiting -= 1
        events, halt = Arriving(), threading.Event()
        arguments = (wish, caller, events, halt)
        try:
            threading.Thread(target=self._work, args=arguments, name="answer", daemon=True).start()
        except RuntimeError as error:
            # The system has no thread left; without a release every later request would wait forever
            self._turn.release()
            raise Refusal(503, "The server cannot start another thread; ask again later.", seconds=1) from error
        try:
            async for event in events:
                if event[0] == "error":
                    raise event[2]
                if event[0] != "done":
                    yield event
        finally:
            halt.set()

    def _work(self, wish: Wish, caller: Caller, events: Arriving, halt: threading.Event) -> None:
        start, last = time.monotonic(), ("done", None, None)
        try:
            self._decode(wish, caller, events, halt)
        except Exception as error:  # noqa: BLE001 - a thread has no caller; the client gets a sentence
            last = ("error", None, _refusal(error))
        self._seconds = time.monotonic() - start
        events.put(last)
        events.call(self._turn.release)

    def _decode(self, wish: Wish, caller: Caller, events: Arriving, halt: threading.Event) -> None:
        asked = wish.messages[0]["content"] if wish.raw else wish.messages
        prefixes = self._prefixes.of((caller.key, wish.body.prompt_cache_key)) if caller.key else None
        stream = self._generator.stream(
            asked,
            wish.sampling,
            self._runnable(wish.own.method),
            raw=wish.raw,
            prefixes=prefixes,
            template_arguments=wish.body.chat_template_kwargs,
            answer_prefix_ids=wish.own.answer_prefix_ids,
        )
        try:
            events.put(("header", None, stream.trace.header))
            for step in stream:
                events.put(("step", None, step))
                if halt.is_set():
                    break
        finally:
            stream.close()
        events.put(("end", None, stream.trace.end_reason))


def _refusal(error: Exception) -> Exception:
    """The error as the client gets it; the application has a sentence for what is neither memory nor input."""
    if is_out_of_memory(error):
        return Refusal(503, "The device ran out of memory; shorten the prompt or the answer.")
    return Refusal(400, str(error)) if isinstance(error, ValueError) else error
