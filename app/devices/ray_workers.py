"""The generator as a Ray Serve deployment, and the relay through which a page outside the cluster reads its streams.

Imported only if Ray is installed. A replica has one device and runs one answer at a time; Ray Serve adds and removes
replicas with the length of the queue, and routes, restarts and streams.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

from ray import serve
from ray.exceptions import RayError

from app.asking import Asking
from app.devices.base import Event
from app.devices.local import LocalDevice
from app.devices.remote import FAILED, with_failures
from app.words import page as words
from jakiro.text import read_arguments

APPLICATION = "jakiro"
ATTEMPTS = 2
_PAIR_OPTIONS = ("target", "head", "device", "dtype", "numerics", "template_arguments")
_TAKE_SECONDS = 0.5


@serve.deployment(max_ongoing_requests=1)
class Worker:
    """One replica: a device of its own.

    Args:
        load_generator: makes the generator, in the replica.
        places: how many replicas there may be.
    """

    def __init__(self, load_generator: Callable[[], object], places: int) -> None:
        self._device, self._places = LocalDevice(load_generator), places
        self._device.load(lambda *_: None)
        self._turn = threading.Lock()

    def facts(self) -> dict:
        """Return places, status, costs and environment for the page."""
        facts = {name: getattr(self._device, name) for name in ("status", "costs", "environment")}
        return {"places": self._places, **facts}

    async def answer(self, asking: Asking) -> AsyncIterator[Event]:
        """Yield the events of one answer; a cancelled request ends it after the current step."""
        halt, loop, arrived = threading.Event(), asyncio.get_running_loop(), asyncio.Queue()

        def decode() -> None:
            # A cancelled answer may still be in its last step when the next request is here
            with self._turn:
                for event in with_failures(self._device.answer(asking, halt)):
                    loop.call_soon_threadsafe(arrived.put_nowait, event)
            loop.call_soon_threadsafe(arrived.put_nowait, None)

        threading.Thread(target=decode, name="answer", daemon=True).start()
        try:
            while (event := await arrived.get()) is not None:
                yield event
        finally:
            halt.set()


class Relay:
    """An actor in the cluster that reads streams for one page; Ray's client supports plain calls, but no streams.

    If a worker dies before its first step, its answer moves to another one; later, the page gets a sentence.
    """

    def __init__(self) -> None:
        self._worker = serve.get_app_handle(APPLICATION)
        self._reading: dict[str, tuple[asyncio.Queue, asyncio.Task]] = {}

    async def facts(self) -> dict:
        return await self._worker.facts.remote()

    async def open(self, key: str, asking: Asking) -> None:
        arrived: asyncio.Queue = asyncio.Queue()
        self._reading[key] = (arrived, asyncio.create_task(self._read(asking, arrived)))

    async def take(self, key: str) -> list[Event | None]:
        """Return the events since the last call, possibly none; None is the end."""
        arrived, _ = self._reading[key]
        try:
            events = [await asyncio.wait_for(arrived.get(), _TAKE_SECONDS)]
        except TimeoutError:
            return []
        while not arrived.empty():
            events.append(arrived.get_nowait())
        return events

    async def close(self, key: str) -> None:
        """Drop an answer; an unfinished one is cancelled, which frees its worker."""
        _, task = self._reading.pop(key)
        task.cancel()

    async def _read(self, asking: Asking, arrived: asyncio.Queue) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            # Headers wait for the first step, so that a second attempt does not send them twice
            headers: list[Event] = []
            has_started = False
            response = self._worker.options(stream=True).answer.remote(asking)
            try:
                async for event in response:
                    if event[0] == "header":
                        headers.append(event)
                        continue
                    has_started = True
                    for waiting in (*headers, event):
                        arrived.put_nowait(waiting)
                    headers.clear()
            except RayError:
                if not has_started and attempt < ATTEMPTS:
                    continue
                arrived.put_nowait((FAILED, None, words.RAY_WORKER_LOST))
            except asyncio.CancelledError:
                response.cancel()
                raise
            except Exception:  # noqa: BLE001 - not all of Ray Serve's errors are Ray's, and the page waits for an end
                arrived.put_nowait((FAILED, None, words.RAY_WORKER_LOST))
            break
        arrived.put_nowait(None)


def application(load_generator: Callable[[], object], least: int, most: int, resources: dict):
    """Return the application for `serve.run`: `least` to `most` replicas, each with its own `resources`."""
    scaling = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": 1}
    deployment = Worker.options(autoscaling_config=scaling, ray_actor_options=resources)
    return deployment.bind(load_generator, most)


def build(options: dict):
    """Build the app for `serve run --name jakiro app.devices.ray_workers:build …`.

    Args:
        options: `target`, `head`, `device`, `dtype`, `numerics`, `template_arguments` as on the page's command line;
            `methods_from`, comma-separated modules; `min_replicas` and `max_replicas` (1 and 1).

    Raises:
        ValueError: an option is unknown, or template arguments are not JSON.
    """
    options = dict(options)
    least, most = (int(options.pop(name, 1)) for name in ("min_replicas", "max_replicas"))
    modules = options.pop("methods_from", "")
    unknown = sorted(set(options) - set(_PAIR_OPTIONS))
    if unknown:
        names = ", ".join([*_PAIR_OPTIONS, "methods_from", "min_replicas", "max_replicas"])
        raise ValueError(f"Unknown option {unknown[0]!r}; choose among {names}.")

    if "template_arguments" in options:
        options["template_arguments"] = read_arguments(options["template_arguments"])

    def load():
        from jakiro import JakiroGenerator
        from jakiro.drafters.registry import methods_from

        return JakiroGenerator.from_pretrained(**options, methods=methods_from(filter(None, modules.split(","))))

    on_gpu = str(options.get("device", "")).startswith("cuda")
    return application(load, least, max(least, most), {"num_gpus": 1} if on_gpu else {"num_cpus": 1})
