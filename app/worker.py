"""One model, many visitors: loading in the background, a fair turn for each answer, and the thread that decodes.

Gradio resumes a generator on changing threads and starts the next one before the last is closed, so neither the model's
thread nor its exclusion can be left to it: each answer has one thread of its own, and a turn is one lock in order of
arrival. Step times are the library's; nothing here measures.
"""

import queue
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from app import words
from app.asking import DRAFTED, PLAIN, Asking

QUEUE_LIMIT = 16
KEPT_RUNS = 64
_LOOK_AROUND_SECONDS = 0.1


class ModelService:
    """Holds the generator, loads it in a background thread and hands it to one answer at a time."""

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._changed = threading.Condition()
        self._tickets: deque[object] = deque()
        self.generator = None
        self.failure: str | None = None
        self.measuring = False

    def start(self) -> None:
        threading.Thread(target=self._load_now, name="load-model", daemon=True).start()

    def _load_now(self) -> None:
        try:
            generator, failure = self._load(), None
            self._measure(generator)
        except Exception as error:  # noqa: BLE001 - whatever stops loading must reach the page as a sentence
            generator, failure = None, words.LOAD_FAILED.format(reason=str(error) or type(error).__name__)
        with self._changed:
            self.generator, self.failure, self.measuring = generator, failure, False
            self._changed.notify_all()

    def _measure(self, generator) -> None:
        """Measures what passes cost here before the first answer needs it; the library keeps the result."""
        if generator.status["head"]:
            self.measuring = True
            _ = generator.profile

    @property
    def settled(self) -> bool:
        """Whether loading and measuring are over, well or badly."""
        return self.generator is not None or self.failure is not None

    def wait_until_settled(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.settled, timeout=seconds)

    def chip(self) -> dict:
        """What the status chip says: its state and its words."""
        if self.failure:
            return {"state": "failed", "text": words.CHIP_FAILED, "title": self.failure}
        if self.generator is None:
            text = words.CHIP_MEASURING if self.measuring else words.CHIP_LOADING
            return {"state": "loading", "text": text, "title": ""}
        status = self.generator.status
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
    """A visitor's place in the queue; as a context manager it waits and gives the generator, or None when halted."""

    def __init__(self, service: ModelService, halt: threading.Event, told: Callable[[str], None]) -> None:
        self._service, self._halt, self._told = service, halt, told

    def __enter__(self):
        service, said = self._service, None
        with service._changed:
            while not self._halt.is_set():
                position = service._tickets.index(self)
                if service.failure:
                    raise ValueError(service.failure)
                if position == 0 and service.generator is not None:
                    return service.generator
                sentence = words.WAITING_IN_QUEUE.format(position=position) if position else words.WAITING_FOR_MODEL
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

    Events are (kind, method, payload): ("wait", None, sentence), ("header", method, Header), ("step", method, Step),
    ("end", method, reason), then ("error", None, sentence) or ("done", None, None) as the last one.
    """

    def __init__(self, service: ModelService, asking: Asking) -> None:
        self.id = uuid.uuid4().hex
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self.traces: dict = {}
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
            with self._turn as generator:
                if generator is not None:
                    self._decode(generator)
        except ValueError as error:
            last = ("error", None, str(error))
        except MemoryError:
            last = ("error", None, words.OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - a thread has no caller; the page must hear of it in words
            out_of_memory = "out of memory" in str(error).lower()
            sentence = words.OUT_OF_MEMORY if out_of_memory else words.UNEXPECTED.format(kind=type(error).__name__)
            last = ("error", None, sentence)
        finally:
            self.finished.set()
            self.events.put(last)

    def _decode(self, generator) -> None:
        steps, traces = self._open(generator)
        announced: set[str] = set()
        self._announce(traces(), announced)
        try:
            for method, step in steps:
                self._announce(traces(), announced)
                self.events.put(("step", method, step))
                if self._halt.is_set():
                    break
        finally:
            steps.close()
        self._announce(traces(), announced)
        for method, trace in self.traces.items():
            self.events.put(("end", method, trace.end_reason or "stopped"))

    def _open(self, generator):
        """The library's iterator of (method, step), and a function giving its traces so far."""
        asking = self._asking
        messages = list(asking.messages)
        methods = asking.methods
        if not generator.status["head"]:
            methods = tuple(method for method in methods if method != DRAFTED) or (PLAIN,)
        if len(methods) > 1:
            race = generator.race(messages, asking.params, methods=methods, tree=asking.tree)
            return _Closing(iter(race), race), lambda: race.traces
        stream = generator.stream(messages, asking.params, method=methods[0], tree=asking.tree)
        pairs = ((methods[0], step) for step in stream)
        return _Closing(pairs, stream), lambda: {methods[0]: stream.trace}

    def _announce(self, traces: dict, announced: set[str]) -> None:
        for method, trace in traces.items():
            if trace is not None and method not in announced:
                announced.add(method)
                self.traces[method] = trace
                self.events.put(("header", method, trace.header))


class _Closing:
    """An iterator over `pairs` whose close() also closes what they come from."""

    def __init__(self, pairs: Iterator, source) -> None:
        self._pairs, self._source = pairs, source

    def __iter__(self):
        return self._pairs

    def close(self) -> None:
        self._source.close()


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
