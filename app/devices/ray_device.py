"""Workers of a Ray cluster as the page's device; `ray_workers.py` defines them. Imported only if Ray is installed."""

import threading
import uuid
from collections.abc import Callable, Iterator

import ray
from ray.exceptions import RayActorError, RayError

from app.asking import Asking
from app.devices.base import LOADING, Event
from app.devices.ray_workers import Relay
from app.devices.remote import follow
from app.words import page as words

# A cluster starts a process for each program outside it; on a busy machine some end at once
TRIES = 3


class RayDevice:
    """Sends each answer to a worker of the application "jakiro" in a Ray cluster.

    Args:
        address: as `ray.init` takes it: ray://host:port from anywhere, or auto on one of the cluster's machines.
    """

    metered, places = False, 1
    status: dict | None = None
    costs: dict | None = None
    environment: dict | None = None

    def __init__(self, address: str) -> None:
        self._address = address
        self._relay, self._mending = None, threading.Lock()

    def load(self, report: Callable[[str, float | None], None]) -> None:
        """Connect to the cluster; each error names the step that failed.

        Raises:
            ConnectionError: no cluster, no process of the cluster for this page, or no workers of this page in it.
        """
        report(LOADING, None)
        try:
            self._connect()
        except ConnectionAbortedError as error:
            raise ConnectionError(words.RAY_NO_PROCESS.format(address=self._address)) from error
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConnectionError(words.RAY_NO_CLUSTER.format(address=self._address)) from error
        try:
            self._new_relay()
        except RayError as error:
            raise ConnectionError(words.RAY_NO_WORKERS.format(address=self._address)) from error

    def _connect(self) -> None:
        for tries_left in reversed(range(TRIES)):
            try:
                ray.init(self._address, log_to_driver=False)
            except ConnectionAbortedError:
                if not tries_left:
                    raise
            else:
                return

    def _new_relay(self) -> None:
        self._relay = ray.remote(Relay).options(num_cpus=0).remote()
        for name, fact in ray.get(self._relay.facts.remote()).items():
            setattr(self, name, fact)

    def answer(self, asking: Asking, halt: threading.Event, prefixes: object = None) -> Iterator[Event]:
        try:
            yield from follow(lambda reader_left: self._stream(asking, reader_left), halt)
        except (RayError, ConnectionError) as error:
            raise ValueError(words.RAY_UNREACHABLE) from error

    def close(self) -> None:
        ray.shutdown()

    def _stream(self, asking: Asking, reader_left: threading.Event) -> Iterator[Event]:
        key = uuid.uuid4().hex
        try:
            relay = self._relay
            ray.get(relay.open.remote(key, asking))
        except RayActorError:
            # It died with its machine; its streams are lost, but later answers are not affected
            with self._mending:
                if self._relay is relay:
                    self._new_relay()
            relay = self._relay
            ray.get(relay.open.remote(key, asking))
        try:
            while not reader_left.is_set():
                for event in ray.get(relay.take.remote(key)):
                    if event is None:
                        return
                    yield event
        finally:
            relay.close.remote(key)
