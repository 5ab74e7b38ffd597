"""One visitor's benchmark: prompts are measured one turn at a time, so that other answers can run in between.

`jakiro.bench` decides which runs are made and how they are summarized; this module only takes turns, stops on request
and reports progress.
"""

import queue
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace

from app.asking import Asking
from app.devices.base import Device, keep
from app.serving.worker import ModelService, Stoppable
from app.words import benchmark as benchmark_words
from app.words.errors import sentence_of
from jakiro.bench.render import as_json
from jakiro.bench.report import summarise
from jakiro.bench.runner import Bench, BenchSettings, Run
from jakiro.config import SamplingParams, TreeConfig
from jakiro.prompts import Question
from jakiro.trace import Trace

MOST_SESSIONS = 32
_BREATH_SECONDS = 0.5


class Halted(Exception):
    """The visitor stopped or left during a run; the results of that run are dropped."""


class HaltingGenerator:
    """A device as a generator for `Bench`: one method at a time, ending soon after `halt` is set."""

    def __init__(self, device: Device, halt: threading.Event) -> None:
        self._device, self._halt = device, halt

    def run(self, messages, sampling: SamplingParams, method: str, tree: TreeConfig | None = None) -> Trace:
        """Decode to the end and return the trace.

        Raises:
            Halted: it was stopped before the end.
        """
        numerics = self._device.status.get("numerics", "exact")
        asking = Asking(tuple(messages), sampling, tree or TreeConfig(), (method,), numerics)
        traces: dict[str, Trace] = {}
        for event in self._device.answer(asking, self._halt):
            keep(event, traces)
        trace = traces.get(method)
        if trace is None or trace.end_reason == "stopped":
            raise Halted
        return trace


class BenchmarkRun(Stoppable):
    """A benchmark in its own thread; `events` holds (kind, None, value), the last kind is "done" or "error".

    A value is the data of the tab: state, finished and total prompts, the current category, and the groups so far.
    """

    def __init__(
        self, service: ModelService, settings: BenchSettings, questions: Sequence[Question], group: str = ""
    ) -> None:
        super().__init__(service, "benchmark")
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self.settings, self.questions = settings, tuple(questions)
        self.runs: list[Run] = []
        self.prompts_done = 0
        self.group = group
        self._groups: list[dict] = []
        self._environment: dict = {}
        self._pair: tuple | None = None
        self._benches: dict[float, Bench] = {}

    def start(self) -> None:
        self._thread.start()

    @property
    def at_work(self) -> bool:
        """Return whether it is still running."""
        return self._thread.ident is None or self._thread.is_alive()

    def results(self) -> str | None:
        """Return the results so far in the format of `python -m jakiro bench`; None before the first prompt is done."""
        runs = list(self.runs)
        return as_json(self._environment, self.settings, summarise(runs), runs) if runs else None

    def _work(self) -> None:
        last = "done"
        try:
            for number, question in enumerate(self.questions):
                self._measure(number, question)
        except Halted:
            self._say("stopped", **({"error": self._reason} if self._reason else {}))
        except Exception as error:  # noqa: BLE001 - a thread has no caller; the page shows a sentence
            last = "error"
            self._say("stopped", error=sentence_of(error))
        else:
            self._say("finished")
        self.events.put((last, None, None))

    def _measure(self, number: int, question: Question) -> None:
        """Measure one prompt at every temperature, with a queue place for each; add its numbers after the last one."""
        runs = []
        for temperature in self.settings.temperatures:
            with self._next_turn() as may_run:
                if not may_run:
                    raise Halted
                self._say("running", number=number)
                bench = self._bench(self._service.device, temperature, question)
                runs += bench.runs([question], number_of_first=number)
        self.runs += runs
        self.prompts_done = number + 1
        self._groups = [asdict(group) for group in summarise(self.runs)]
        self._say("running", number=number)

    def _next_turn(self):
        """Return a place in the queue; if the queue is full, retry until there is one."""
        while not self._halt.is_set():
            try:
                return self._service.turns.take(
                    self._halt, lambda sentence: self._say("waiting", waiting=sentence), self.group
                )
            except ValueError:
                self._halt.wait(_BREATH_SECONDS)
        raise Halted

    def _bench(self, device: Device, temperature: float, question: Question) -> Bench:
        pair = tuple(device.status[name] for name in ("target", "head"))
        if self._pair is None:
            if not device.status["head"] and any(method.needs.head for method in self.settings.drafting_methods):
                raise ValueError(benchmark_words.NO_HEAD)
            self._pair = pair
        if pair != self._pair:
            raise ValueError(benchmark_words.MODEL_CHANGED)
        if temperature not in self._benches:
            settings = replace(self.settings, temperatures=(temperature,))
            self._benches[temperature] = Bench(HaltingGenerator(device, self._halt), settings)
            if len(self._benches) == 1:
                self._benches[temperature].warm_up(question)
                # A borrowed GPU is known once it has computed
                self._environment = device.environment
        return self._benches[temperature]

    def _say(self, state: str, number: int | None = None, **more) -> None:
        at_work = {} if number is None else {"number": number + 1, "category": self.questions[number].category}
        value = {
            "run": self.id,
            "state": state,
            "done": self.prompts_done,
            "total": len(self.questions),
            "groups": self._groups,
            "environment": self._environment,
            "settings": self.settings.to_dict(),
        }
        self.events.put(("state", None, value | at_work | more))


class Benchmarks:
    """The latest benchmark of each session, so that Stop, a new start and a closed tab find it, and its results."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, BenchmarkRun] = {}

    def start(self, session: str, run: BenchmarkRun, most_of_group: int | None = None) -> None:
        """Start a run in place of the session's last one.

        Args:
            most_of_group: how many runs of the run's group may be at work.

        Raises:
            ValueError: so many are at work in other sessions.
        """
        with self._lock:
            running = [other_run for owner, other_run in self._runs.items() if owner != session and other_run.at_work]
            count = sum(other_run.group == run.group for other_run in running)
            if most_of_group is not None and count >= most_of_group:
                raise ValueError(benchmark_words.TOO_MANY.format(count=count))
            before = self._runs.pop(session, None)
            self._runs[session] = run
            forgotten = [self._runs.pop(next(iter(self._runs))) for _ in range(len(self._runs) - MOST_SESSIONS)]
        for old in [before, *forgotten]:
            if old is not None:
                old.stop()
        run.start()

    def stop(self, session: str) -> None:
        with self._lock:
            run = self._runs.get(session)
        if run is not None:
            run.stop()

    def stop_all(self, reason: str) -> None:
        """Stop every benchmark; `reason` is the sentence for its reader."""
        for run in self._stored():
            run.stop(reason)

    def results(self, run_id: str) -> str | None:
        """Return `BenchmarkRun.results` of a run; None if it is no longer kept."""
        run = next((run for run in self._stored() if run.id == run_id), None)
        return run.results() if run else None

    def _stored(self) -> list[BenchmarkRun]:
        with self._lock:
            return list(self._runs.values())
