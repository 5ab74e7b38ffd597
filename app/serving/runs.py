"""The answers of all visitors, running and done: by visitor for Stop and closed tabs, by id for Save; bounded."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from app.serving.limits import Limits
from app.serving.pace import Busy, Pace
from app.serving.worker import RETURN_SECONDS, AnswerRun
from app.words import page as words
from jakiro.trace import Trace

# Measured over traces of the default pair: a node with its strings, numbers and tuples, and a step around it
NODE_BYTES, STEP_BYTES = 900, 1500


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request.

    Attributes:
        session: one browser tab, or one program.
        address: network address, or user name if the page has logins.
        stays: whether the same session may send more requests.
    """

    session: str
    address: str = ""
    stays: bool = field(default=True, compare=False)


def paces_of(visitor: Visitor, limits: Limits) -> dict[object, int]:
    """Return the visitor's limits of answers per minute. The address has one too: programs can choose sessions."""
    return {
        ("visitor", visitor.session): limits.answers_per_minute,
        ("address", visitor.address): limits.answers_per_minute_address,
    }


class Runs:
    """Runs by id, with the visitor each belongs to.

    Args:
        now: seconds on a clock that only goes forward.
    """

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._now = limits, now
        self.pace = Pace(now)
        self._lock = threading.Lock()
        # Held from admitting an answer until it is counted, so that two requests at once are two
        self.entrance = threading.Lock()
        self._runs: OrderedDict[str, tuple[Visitor, AnswerRun, float]] = OrderedDict()

    def admit(self, visitor: Visitor, replace: bool = True, answers: int = 1) -> None:
        """Admit one more answer of this visitor.

        Args:
            replace: stop the visitor's oldest unfinished answer; otherwise the new one is rejected.
            answers: how many it counts as in the visitor's minute.

        Raises:
            ValueError: too many answers in the last minute, or too many at once.
        """
        limits = self._limits
        unfinished = [run for run in self._of(visitor.session) if not run.finished.is_set()]
        excess = len(unfinished) - limits.answers_at_once + 1
        if excess > 0 and not replace:
            raise Busy(words.TOO_MANY_AT_ONCE.format(limit=limits.answers_at_once))
        self.pace.admit(paces_of(visitor, limits), count=answers)
        for run in unfinished[: max(0, excess)]:
            run.stop()

    def add(self, visitor: Visitor, run: AnswerRun) -> None:
        with self._lock:
            self._runs[run.id] = (visitor, run, self._now())
        self.drop_surplus()

    def stop(self, session: str) -> int:
        """Stop the visitor's unfinished answers; return their number."""
        unfinished = [run for run in self._of(session) if not run.finished.is_set()]
        for run in unfinished:
            run.stop()
        return len(unfinished)

    def leave(self, session: str) -> None:
        """Keep the answers of a visitor who has left for one more minute, in case the page was reloaded."""
        latest = self._now() - 60 * self._limits.kept_minutes + RETURN_SECONDS
        with self._lock:
            for run_id, (owner, run, added) in self._runs.items():
                if owner.session == session:
                    run.leave()
                    self._runs[run_id] = (owner, run, min(added, latest))

    def forget(self, run_id: str) -> None:
        """Drop an answer, finished or not."""
        with self._lock:
            self._runs.pop(run_id, None)

    def take_over(self, run_id: str, visitor: Visitor) -> AnswerRun | None:
        """Assign an answer to the visitor who sent its id; None if it is no longer kept."""
        run = self.find(run_id)
        with self._lock:
            if run is not None:
                self._runs[run_id] = (visitor, run, self._now())
        return run

    def visitor(self, run_id: str) -> Visitor | None:
        """Return the visitor to whom an answer belongs; None if it is no longer kept."""
        with self._lock:
            return self._runs[run_id][0] if run_id in self._runs else None

    def stop_all(self, reason: str) -> None:
        """Stop every answer; `reason` is the sentence for its reader."""
        for run in self._of(None):
            run.stop(reason)

    def wait_until_finished(self, seconds: float) -> None:
        """Wait until all answers have finished, at most `seconds`."""
        deadline = time.monotonic() + seconds
        for run in self._of(None):
            run.finished.wait(max(0.0, deadline - time.monotonic()))

    def traces(self, run_id: str) -> dict[str, Trace]:
        """Return the traces of one run by method.

        Raises:
            ValueError: no such run, or it is no longer kept.
        """
        run = self.find(run_id)
        if run is None:
            raise ValueError(words.UNKNOWN_RUN)
        return dict(run.traces)

    def find(self, run_id: str) -> AnswerRun | None:
        """Return a run; None if it is unknown or no longer kept."""
        self.drop_surplus()
        with self._lock:
            entry = self._runs.get(run_id)
        return entry and entry[1]

    def __len__(self) -> int:
        return len(self._runs)

    def drop_surplus(self) -> None:
        """Drop finished answers that are too old, then the oldest until the rest fits."""
        oldest = self._now() - 60 * self._limits.kept_minutes
        with self._lock:
            total = sum(trace_bytes(run) for _, run, _ in self._runs.values())
            for run_id, (_, run, added) in list(self._runs.items()):
                surplus = added < oldest or total > self._limits.kept_megabytes * 2**20
                if surplus and run.finished.is_set():
                    total -= trace_bytes(run)
                    del self._runs[run_id]

    def _of(self, session: str | None) -> list[AnswerRun]:
        """Return the runs of a visitor, or of all for None."""
        with self._lock:
            return [run for owner, run, _ in self._runs.values() if session in (None, owner.session)]


def trace_bytes(run: AnswerRun) -> int:
    """Return the approximate memory of a run's traces and its sent updates, in bytes."""
    steps = sum(len(trace.steps) for trace in run.traces.values())
    return NODE_BYTES * run.num_nodes + STEP_BYTES * (steps + 1) + sum(map(len, run.ticks))
