"""How much a lane has room for."""

from typing import NamedTuple


class Room(NamedTuple):
    """How large a lane's buffers are, or have to be.

    Attributes:
        tokens: of prompt and answer.
        nodes: of the largest tree.
        draft_rows: levels × width of the widest draft.
    """

    tokens: int
    nodes: int
    draft_rows: int

    def holds(self, other: "Room") -> bool:
        return self == self.joined(other)

    def joined(self, other: "Room") -> "Room":
        return Room(*map(max, self, other))
