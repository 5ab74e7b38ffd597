"""The fastest lane over the same prompts, and whether its lead is more than noise."""

from collections.abc import Sequence
from dataclasses import dataclass

from jakiro.bench.report import speed_ratio
from jakiro.bench.runner import Lane, Run


@dataclass(frozen=True, slots=True)
class Lead:
    """The fastest lane and its lead.

    Attributes:
        first: the lane with the highest speed over all prompts.
        level: lanes whose ratio to `first` has an interval that contains 1, or that have no interval.
        against: the fastest lane of `level`, else the second-fastest lane.
        ratio, interval: speed of `first` ÷ speed of `against`.
    """

    first: Lane
    level: tuple[Lane, ...]
    against: Lane
    ratio: float
    interval: tuple[float, float] | None


def lead(runs: Sequence[Run]) -> Lead | None:
    """Return the fastest of the lanes at one temperature, or None for fewer than two lanes.

    The interval is compared as it is printed, with two digits.
    """
    of = {lane: [run for run in runs if run.lane == lane] for lane in dict.fromkeys(run.lane for run in runs)}
    first, *slower = sorted(of, key=lambda lane: _seconds_per_token(of[lane]))
    ratios = {lane: speed_ratio(of[first], of[lane]) for lane in slower}
    ratios = {lane: ratio for lane, ratio in ratios.items() if ratio[0] is not None}
    if not ratios:
        return None
    level = tuple(lane for lane, (_, interval) in ratios.items() if interval is None or round(interval[0], 2) <= 1)
    against = level[0] if level else next(iter(ratios))
    return Lead(first, level, against, *ratios[against])


def _seconds_per_token(runs: Sequence[Run]) -> float:
    tokens = sum(run.decoded for run in runs)
    return sum(run.seconds for run in runs) / tokens if tokens else float("inf")
