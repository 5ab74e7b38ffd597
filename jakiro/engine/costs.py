"""What passes cost on one device, as plain numbers; `profile.py` measures them, `budget.py` chooses trees by them."""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

# Rounds of timings after which costs count as known
ROUNDS = 5
NODE_BUCKETS = (2, 4, 6, 8, 10, 12, 14, 20, 24, 28, 42, 56, 64)


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What passes cost on one device.

    Attributes:
        verify_ms: (nodes, milliseconds) of a target pass, ascending; the first entry is plain decoding's pass.
        draft_ms: (levels, milliseconds) of growing a tree of so many levels, ascending from 1; empty for a method that
            needs no draft passes.
        width: the frontier width the drafts were measured with.
        key: what was measured: target, method, head, device, dtype, numerics.
        buckets: the numbers of nodes that trees choose from, ascending; a tree in between costs as much as the next.
        context: tokens before the root where this was measured.
        verify_slopes, draft_slopes: (nodes or levels, milliseconds) that 1,000 further tokens before the root add;
            empty where that was not measured.
        rounds: complete rounds of timings so far, of `ROUNDS`; 0 during the first.
    """

    verify_ms: tuple[tuple[int, float], ...]
    draft_ms: tuple[tuple[int, float], ...]
    width: int
    key: dict = field(default_factory=dict)
    buckets: tuple[int, ...] = NODE_BUCKETS
    context: int = 0
    verify_slopes: tuple[tuple[int, float], ...] = ()
    draft_slopes: tuple[tuple[int, float], ...] = ()
    rounds: int = ROUNDS

    def verify(self, nodes: int, context: int = 0) -> float:
        """Milliseconds of a target pass over so many nodes with `context` tokens before the root."""
        return interpolate(self.verify_ms, nodes) + self._further(self.verify_slopes, nodes, context)

    def draft(self, levels: int, context: int = 0) -> float:
        """Milliseconds of growing a tree of so many levels there."""
        if not levels or not self.draft_ms:
            return 0.0
        return interpolate(self.draft_ms, levels) + self._further(self.draft_slopes, levels, context)

    def _further(self, slopes: tuple[tuple[int, float], ...], count: int, context: int) -> float:
        return interpolate(slopes, count) * max(context - self.context, 0) / 1000 if slopes else 0.0

    def to_dict(self) -> dict:
        """The fields in JSON's types."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, values: dict) -> "DeviceProfile":
        """What `to_dict` gave.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """

        def points(name: str) -> tuple[tuple[int, float], ...]:
            return tuple((int(count), float(ms)) for count, ms in values[name])

        curves = {name: points(name) for name in ("verify_ms", "draft_ms", "verify_slopes", "draft_slopes")}
        numbers = {name: int(values[name]) for name in ("width", "context")}
        buckets = tuple(int(nodes) for nodes in values["buckets"])
        # Files from before rounds were counted hold whole measurements
        rounds = int(values.get("rounds", ROUNDS))
        return cls(**curves, **numbers, buckets=buckets, key=dict(values["key"]), rounds=rounds)


def interpolate(points: Sequence[tuple[int, float]], x: float) -> float:
    """Piecewise linear through ascending (x, y) points; beyond the last one its last slope goes on."""
    if len(points) == 1 or x <= points[0][0]:
        return points[0][1]
    right = min(bisect_left([point[0] for point in points], x), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
