"""The OpenAI-compatible API on a tiny generator, in a server of this process."""

import asyncio
import socket
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from jakiro.server.application import application
from jakiro.server.generator_lock import OneGenerator

# Seconds that anything may take on a busy machine; tests that pass do not wait so long
PATIENCE = 180

PROMPT = "the cat sat on the mat; the cat sat"
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}]}


@contextmanager
def served(generator, keys: tuple[str, ...] = (), queue_length: int = 64) -> Iterator[tuple[str, OneGenerator]]:
    """Yield the address and the backend."""
    backend = OneGenerator(generator, queue_length)
    listening = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Mount("/v1", application(backend, keys))])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", backend
    finally:
        server.should_exit = True
        thread.join(10)


def run_apart(coroutine: Coroutine):
    """Return the result of a coroutine that runs in a new thread, because tests of the browser leave a running loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def wait_until(condition, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.02)


def any_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Gated:
    """A generator whose answers take a step only while `gate` is set.

    Attributes:
        owners: owners of the prompt caches of its answers.
        steps: number of steps so far.
        closed: end reason of each answer.
        failing: an error that the second step of the next answer raises.
    """

    def __init__(self, generator) -> None:
        self._generator, self.gate, self.failing = generator, threading.Event(), None
        self.owners, self.closed, self.steps = [], [], 0
        self.gate.set()

    def __getattr__(self, name: str):
        return getattr(self._generator, name)

    def stream(self, *arguments, prefixes=None, **options) -> "GatedStream":
        self.owners.append(prefixes and prefixes.owner)
        return GatedStream(self, self._generator.stream(*arguments, **options))


class GatedStream:
    def __init__(self, owner: Gated, stream) -> None:
        self._owner, self._stream, self.trace = owner, stream, stream.trace

    def __iter__(self):
        for step in self._stream:
            self._owner.gate.wait(PATIENCE)
            if self._owner.failing is not None and step.index:
                failing, self._owner.failing = self._owner.failing, None
                raise failing
            self._owner.steps += 1
            yield step

    def close(self) -> None:
        self._stream.close()
        self._owner.closed.append(self.trace.end_reason)
