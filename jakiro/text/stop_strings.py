"""Stop strings: the end of an answer at the first of some texts."""

from collections.abc import Sequence


class UntilStop:
    """Filter of a growing text that ends it before the first stop string.

    Text that may be the beginning of a stop string is held back. If every push adds one token, the text ends at the
    same place for every drafting method.

    Attributes:
        found: True after a stop string has appeared; later pushes return nothing.
    """

    def __init__(self, stops: Sequence[str]):
        self._stops = tuple(stops)
        self._held_back = ""
        self.found = False

    def push(self, text: str) -> str:
        """Return the text that is certain to belong to the answer; it may be empty."""
        pending = self._held_back + text
        starts = [start for start in map(pending.find, self._stops) if start >= 0]
        if starts:
            self.found = True
            self._held_back = ""
            return pending[: min(starts)]
        split = len(pending) - self._longest_partial_stop(pending)
        self._held_back = pending[split:]
        return pending[:split]

    def finish(self) -> str:
        """Return the text that was held back and did not become a stop string."""
        held_back, self._held_back = self._held_back, ""
        return held_back

    def _longest_partial_stop(self, text: str) -> int:
        """Return the length of the longest end of `text` that is the start of a stop string."""
        for length in range(len(text), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
