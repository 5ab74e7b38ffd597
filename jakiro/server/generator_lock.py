"""One generator that answers one request at a time, first come, first served."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from math import ceil
from pathlib import Path

from jakiro.decode.prefix_cache import PrefixStore
from jakiro.drafters.registry import Methods
from jakiro.generator import JakiroGenerator
from jakiro.server.application import Caller
from jakiro.server.errors import Refusal, prompt_error
from jakiro.server.event_queue import Event, EventQueue
from jakiro.server.request import CompletionRequest
from jakiro.system import is_out_of_memory

QUEUE_LENGTH = 64


class OneGenerator:
    """Backend of the command `serve`, see `jakiro.server.application.Backend`.

    Args:
        generator: decodes the answers.
        queue_length: number of requests that may wait.

    Attributes:
        num_waiting: requests in the queue.
    """

    def __init__(self, generator: JakiroGenerator, queue_length: int = QUEUE_LENGTH) -> None:
        self._generator, self._queue_length, self.num_waiting = generator, queue_length, 0
        self.model, self.default_tokens = Path(generator.target.name).name, generator.max_prompt_tokens
        self._prefixes, self._turn = PrefixStore(), asyncio.Lock()
        self._last_seconds = 1.0

    @property
    def is_answering(self) -> bool:
        return self._turn.locked()

    @property
    def methods(self) -> Methods:
        return self._generator.known_methods

    @property
    def notices(self) -> list[str]:
        """Messages for the operator of the server, in addition to the generator's."""
        if self._generator.status["head"] or self._generator.notices:
            return []
        return [f"No draft head is loaded; requests are answered with {self._generator.usual.name}."]

    async def answer(self, request: CompletionRequest, caller: Caller) -> AsyncIterator[Event]:
        if self.is_answering and self.num_waiting >= self._queue_length:
            raise Refusal(429, "The queue is full; ask again later.", seconds=max(1, ceil(self._last_seconds)))
        self.num_waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.num_waiting -= 1
        events, halt = EventQueue(), threading.Event()
        arguments = (request, caller, events, halt)
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

    def _work(self, request: CompletionRequest, caller: Caller, events: EventQueue, halt: threading.Event) -> None:
        start, last = time.monotonic(), ("done", None, None)
        try:
            self._decode(request, caller, events, halt)
        except Exception as error:  # noqa: BLE001 - a thread has no caller; the client receives the error
            last = ("error", None, _refusal(error, request))
        self._last_seconds = time.monotonic() - start
        events.put(last)
        events.call(self._turn.release)

    def _decode(self, request: CompletionRequest, caller: Caller, events: EventQueue, halt: threading.Event) -> None:
        if request.body.echo:
            events.put(("prompt", None, self._generator.score_prompt(request.prompt, request.sampling.logprobs)))
            if not request.generates:
                events.put(("end", None, "length"))
                return
        prefixes = self._prefixes.of((caller.key, request.body.prompt_cache_key)) if caller.key else None
        stream = self._generator.stream(
            request.prompt,
            request.sampling,
            self._runnable(request.method),
            raw=request.raw,
            prefixes=prefixes,
            template_arguments=request.body.chat_template_kwargs,
            answer_prefix_ids=request.extension.answer_prefix_ids,
            prediction=request.prediction,
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

    def _runnable(self, name: str | None) -> str | None:
        """Return the requested method; None, which is the usual one, if it needs a head and none is loaded."""
        if name is None or self._generator.status["head"]:
            return name
        return name if name in self._generator.known_methods.runnable_without_head([name]) else None


def _refusal(error: Exception, request: CompletionRequest) -> Exception:
    """Return the error for the client; the application handles all but memory and input errors."""
    if is_out_of_memory(error):
        return Refusal(503, "The device ran out of memory; shorten the prompt or the answer.")
    return prompt_error(str(error), request) if isinstance(error, ValueError) else error
