"""One line of a doctor's report."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What was asked and found; `ok` is false where the user has to do something."""

    what: str
    found: str
    ok: bool = True
