"""Rate limits: the start times of the last minute per visitor."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from app.words import page as words

MINUTE = 60.0


class Busy(ValueError):
    """Error: a rate limit is exceeded.

    Args:
        seconds: seconds until the next attempt makes sense.
    """

    def __init__(self, sentence: str, seconds: int = 1) -> None:
        super().__init__(sentence)
        self.seconds = seconds


class Pace:
    """Counts answers per key in the last minute.

    Args:
        now: seconds on a clock that only goes forward.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._starts: dict[object, deque[float]] = {}

    def admit(self, limits: dict[object, int], refusal: str = words.TOO_FAST, count: int = 1) -> None:
        """Count answers for every key, or for none of them.

        Args:
            limits: answers per minute by key.
            refusal: error message; may contain {answers} and {seconds}.
            count: answers to count; more than a key's limit use its whole minute.

        Raises:
            Busy: a key has used its minute; the message has the seconds until the next answer.
        """
        now = self._now()
        with self._lock:
            self._forget_before(now - MINUTE)
            for key, limit in limits.items():
                starts = self._starts.get(key, ())
                excess = len(starts) + min(count, limit) - limit
                if excess > 0:
                    seconds = max(1, math.ceil(starts[excess - 1] + MINUTE - now))
                    answers = words.ONE_ANSWER if limit == 1 else words.MANY_ANSWERS.format(count=limit)
                    raise Busy(refusal.format(answers=answers, seconds=seconds), seconds)
            for key in limits:
                self._starts.setdefault(key, deque()).extend([now] * count)

    def __len__(self) -> int:
        return len(self._starts)

    def _forget_before(self, moment: float) -> None:
        for key, starts in list(self._starts.items()):
            while starts and starts[0] <= moment:
                starts.popleft()
            if not starts:
                del self._starts[key]
