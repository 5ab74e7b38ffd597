"""One line of the report of `doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked item.

    Attributes:
        topic: name of the item.
        text: the result.
        ok: False if the user has to act.
    """

    topic: str
    text: str
    ok: bool = True
