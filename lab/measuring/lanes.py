"""The order of lanes that are measured alternately."""

from collections.abc import Iterable


def rotated(lanes: Iterable[str], turn: int) -> list[str]:
    """Return the lanes, beginning with another one in each turn, so that no lane is always measured first."""
    names = list(lanes)
    first = turn % len(names)
    return names[first:] + names[:first]
