"""One device, many visitors: loading in the background, a turn for each answer, and the thread that reads its events.

Gradio resumes a generator on changing threads and starts the next one before the last is closed, so neither the model's
thread nor its exclusion can be left to it: each answer has one thread of its own, and a turn is one lock in order of
arrival. What a device is, and what may stand in for a local one, is `app/device.py`.
"""

import queue
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from app import words
from app.asking import Asking
from app.device import MEASURING, Device
from app.local_device import is_out_of_memory
from jakiro.trace import Trace

QUEUE_LIMIT = 16
KEPT_RUNS = 64
_LOOK_AROUND_SECONDS = 0.1


class ModelService:
    """Loads a device in a background thread and gives each of its places to one answer at a time."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._changed = threading.Condition()
        self._tickets: deque[object] = deque()
        self.ready = False
        self.failure: str | None = None
        self.stage: tuple[str, float | None] | None = None

    def start(self) -> None:
        threading.Thread(target=self._load_now, name="load-model", daemon=True).start()

    def _load_now(self) -> None:
        failure = None
        try:
            self.device.load(self._tell_stage)
        except Exception as error:  # noqa: BLE001 - whatever stops loading must reach the page as a sentence
            failure = words.LOAD_FAILED.format(reason=str(error) or type(error).__name__)
        with self._changed:
            self.ready, self.failure, self.stage = failure is None, failure, None
            self._changed.notify_all()

    def _tell_stage(self, stage: str, share: float | None) -> None:
        self.stage = (stage, share)

    @property
    def settled(self) -> bool:
        """Whether loading and measuring are over, well or badly."""
        return self.ready or self.failure is not None

    def wait_until_settled(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.settled, timeout=seconds)

    def chip(self) -> dict:
        """What the status chip says: its state and its words."""
        if self.failure:
            return {"state": "failed", "text": words.CHIP_FAILED, "title": self.failure}
        if not self.ready:
            stage, _ = self.stage or (None, None)
            text = words.CHIP_MEASURING if stage == MEASURING else words.CHIP_LOADING
            return {"state": "loading", "text": text, "title": ""}
        status = self.device.status
        text = words.CHIP_READY.format(
            target=status["target"], device=str(status["device"]).upper(), numerics=status["numerics"]
        )
        title = f"{words.CHIP_READY_TITLE} · {status['head'] or words.NO_HEAD} · {status['dtype']}"
        notices = [*status.get("notices", ()), *(() if status["bit_identical"] else (words.ROUNDING,))]
        return {"state": "ready", "text": text, "title": title, "notice": " ".join(notices)}

    def turn(self, halt: threading.Event, told: Callable[[str], None]) -> "Turn":
        """A place in the queue, taken at once.

        Raises:
            ValueError: the queue is full.
        """
        with self._changed:
            if len(self._tickets) >= QUEUE_LIMIT:
                raise ValueError(words.QUEUE_FULL)
            turn = Turn(self, halt, told)
            self._tickets.append(turn)
            return turn


class Turn:
    """A visitor's place in the queue; as a context manager it waits and gives the device, or None when halted."""

    def __init__(self, service: ModelService, halt: threading.Event, told: Callable[[str], None]) -> None:
        self._service, self._halt, self._told = service, halt, told

    def __enter__(self):
        service, said = self._service, None
        with service._changed:
            while not self._halt.is_set():
                position = service._tickets.index(self)
                if service.failure:
                    raise ValueError(service.failure)
                ahead = position - service.device.places + 1
                if ahead <= 0 and service.ready:
                    return service.device
                sentence = words.WAITING_IN_QUEUE.format(position=ahead) if ahead > 0 else words.WAITING_FOR_MODEL
                if sentence != said:
                    self._told(sentence)
                    said = sentence
                service._changed.wait(_LOOK_AROUND_SECONDS)
        return None

    def __exit__(self, *_) -> None:
        with self._service._changed:
            self._service._tickets.remove(self)
            self._service._changed.notify_all()


class Run:
    """One answer being made in its own thread; events wait in `events` and traces grow in `traces`.

    Beside the device's events there are ("wait", None, sentence), and ("error", None, sentence) or ("done", None, None)
    as the last one.
    """

    def __init__(self, service: ModelService, asking: Asking) -> None:
        self.id = uuid.uuid4().hex
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self.traces: dict[str, Trace] = {}
        self.finished = threading.Event()
        self._halt = threading.Event()
        self._asking = asking
        self._turn = service.turn(self._halt, lambda sentence: self.events.put(("wait", None, sentence)))
        self._thread = threading.Thread(target=self._work, name=f"answer-{self.id[:8]}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end after the step it is in; what was made stays."""
        self._halt.set()

    def _work(self) -> None:
        last = ("done", None, None)
        try:
            with self._turn as device:
                if device is not None:
                    self._read(device)
        except ValueError as error:
            last = ("error", None, str(error))
        except Exception as error:  # noqa: BLE001 - a thread has no caller; the page must hear of it in words
            unexpected = words.UNEXPECTED.format(kind=type(error).__name__)
            last = ("error", None, words.OUT_OF_MEMORY if is_out_of_memory(error) else unexpected)
        finally:
            self.finished.set()
            self.events.put(last)

    def _read(self, device: Device) -> None:
        for kind, method, payload in device.answer(self._asking, self._halt):
            if kind == "header":
                self.traces[method] = Trace(payload)
            elif kind == "step":
                self.traces[method].steps.append(payload)
            else:
                self.traces[method].end_reason = payload
            self.events.put((kind, method, payload))


class Runs:
    """The runs of each session, so that Stop and a closed tab find them, and the latest traces by run id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, tuple[str, Run]] = OrderedDict()

    def add(self, session: str, run: Run) -> None:
        with self._lock:
            self._runs[run.id] = (session, run)
            while len(self._runs) > KEPT_RUNS:
                oldest, (_, old) = next(iter(self._runs.items()))
                if not old.finished.is_set():
                    break
                del self._runs[oldest]

    def stop(self, session: str) -> None:
        for run in self._of(session):
            run.stop()

    def drop(self, session: str) -> None:
        """Stops and forgets everything of a session that has gone."""
        for run in self._of(session):
            run.stop()
            with self._lock:
                self._runs.pop(run.id, None)

    def traces(self, run_id: str) -> dict:
        """The traces of one run by method.

        Raises:
            ValueError: no such run, or it is no longer kept.
        """
        with self._lock:
            if run_id not in self._runs:
                raise ValueError(words.UNKNOWN_RUN)
            return dict(self._runs[run_id][1].traces)

    def _of(self, session: str) -> list[Run]:
        with self._lock:
            return [run for owner, run in self._runs.values() if owner == session]


def batches(events: queue.SimpleQueue, seconds: float) -> Iterator[list]:
    """Events in batches at most every `seconds`, until the last one has been given."""
    while True:
        batch = [events.get()]
        deadline = time.monotonic() + seconds
        while batch[-1][0] not in ("done", "error"):
            try:
                batch.append(events.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
        yield batch
        if batch[-1][0] in ("done", "error"):
            return
