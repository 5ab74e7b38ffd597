"""The queue: places in a fair order, the next place, and estimates of the waiting time.

Fair means by network address (or user name if there are logins): the first waiting answer of every group comes before
the second of any group; within a round the earlier one is first. A place gets its round on arrival, never a past one,
so every place is served (start-time fair queuing). The limit of one answer per tab is in `app/serving/runs.py`.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.devices.base import Device
from app.serving.pace import Busy
from app.words import page as words

_LOOK_AROUND_SECONDS = 0.5
_NEW_TIME_WEIGHT = 0.3


class Turns:
    """Places for answers: as many run at once as the device has places, the others wait.

    Args:
        service: has the `device`, whether it can answer (`can_answer`), why it never will again (`refusal`, else None),
            and the maximum queue length (`limits`).
    """

    def __init__(self, service) -> None:
        self._service = service
        self._changed = threading.Condition()
        self._waiting: list[Turn] = []
        self._running: list[Turn] = []
        self._mean_seconds: float | None = None
        self._round, self._last_rounds = 0, {}

    def take(
        self,
        halt: threading.Event,
        report: Callable[[str], None],
        group: str = "",
        look: Callable[[bool], None] = lambda is_wanted: None,
    ) -> "Turn":
        """Take a place in the queue.

        Args:
            halt: set when the visitor cancels; `wake` makes the turn check it.
            report: callback with the sentence about place and time, called when it changes.
            group: address or user name whose places are counted together.
            look: called periodically with whether others wait for this place; it may set `halt`.

        Raises:
            Busy: the queue is full, or the group has all the places it may have.
        """
        with self._changed:
            seconds = max(1, math.ceil(self._mean_seconds or 0))
            limits = self._service.limits
            free = max(0, self._places() - len(self._running)) if self._service.can_answer else 0
            if len(self._waiting) >= limits.queue_length + free:
                raise Busy(words.QUEUE_FULL, seconds)
            num_waiting = sum(turn.group == group for turn in self._waiting)
            if num_waiting >= limits.queue_length_address + free:
                raise Busy(words.QUEUE_FULL_ADDRESS.format(count=num_waiting), seconds)
            turn = Turn(self, halt, report, group, self._next_round(group), look)
            self._waiting.append(turn)
            return turn

    def wake(self) -> None:
        """Wake all waiting answers, so that each checks whether it is its turn."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout=seconds)

    def numbers(self) -> dict:
        """Return the numbers of running and waiting answers, and the mean seconds of one (None before the first)."""
        with self._changed:
            mean = None if self._mean_seconds is None else round(self._mean_seconds, 1)
            return {"running": len(self._running), "waiting": len(self._waiting), "mean_answer_seconds": mean}

    def _places(self) -> int:
        return max(1, self._service.device.places)

    def _order(self) -> list["Turn"]:
        """Return waiting places in service order; sorting is stable, so order of arrival decides within a round."""
        return sorted(self._waiting, key=lambda turn: turn.round)

    def _next_round(self, group: str) -> int:
        """Return the round of a group's next place: the current one, or the one after its last."""
        self._last_rounds = {name: last for name, last in self._last_rounds.items() if last >= self._round}
        self._last_rounds[group] = max(self._round, self._last_rounds.get(group, -1) + 1)
        return self._last_rounds[group]

    def _sentence(self, position: int) -> str:
        """Return the queue message for a position (1-based)."""
        if not self._service.can_answer:
            return words.WAITING_FOR_MODEL
        if self._mean_seconds is None:
            return words.WAITING_IN_QUEUE.format(position=position)
        now = time.monotonic()
        rest = sorted(max(0.0, self._mean_seconds - (now - turn.started)) for turn in self._running)
        places = self._places()
        soonest = rest[(position - 1) % places] if len(rest) > (position - 1) % places else 0.0
        seconds = soonest + (position - 1) // places * self._mean_seconds
        return words.WAITING_WITH_TIME.format(position=position, seconds=_rounded(seconds))

    def _finished(self, turn: "Turn") -> None:
        with self._changed:
            if turn in self._running:
                self._running.remove(turn)
                seconds = time.monotonic() - turn.started
                old = self._mean_seconds
                self._mean_seconds = seconds if old is None else old + _NEW_TIME_WEIGHT * (seconds - old)
            elif turn in self._waiting:
                self._waiting.remove(turn)
            self._changed.notify_all()


@dataclass(slots=True, eq=False)
class Turn:
    """A visitor's place; as a context manager it waits and returns the device, or None if halted."""

    turns: Turns
    halt: threading.Event
    report: Callable[[str], None]
    group: str
    round: int
    look: Callable[[bool], None]
    started: float = 0.0

    def __enter__(self) -> Device | None:
        turns, service, said = self.turns, self.turns._service, None
        try:
            with turns._changed:
                while not self.halt.is_set():
                    if refusal := service.refusal:
                        raise ValueError(refusal)
                    position = turns._order().index(self) + 1
                    free = service.can_answer and position + len(turns._running) <= turns._places()
                    if free:
                        self.started = time.monotonic()
                        turns._waiting.remove(self)
                        turns._running.append(self)
                        turns._round = max(turns._round, self.round)
                        return service.device
                    sentence = turns._sentence(position)
                    if sentence != said:
                        self.report(sentence)
                        said = sentence
                    self.look(position < len(turns._waiting))
                    if service.can_answer:
                        for running in turns._running:
                            running.look(True)
                    turns._changed.wait(_LOOK_AROUND_SECONDS)
        except BaseException:
            self.leave()
            raise
        return None

    def __exit__(self, *_) -> None:
        self.leave()

    def leave(self) -> None:
        """Return the place, waiting or running."""
        self.turns._finished(self)


def _rounded(seconds: float) -> int:
    """Round to whole seconds below ten and to multiples of five above, so that the number is stable."""
    return max(1, math.ceil(seconds)) if seconds < 10 else 5 * round(seconds / 5)
