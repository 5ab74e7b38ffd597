"""Who is first over the same prompts, and whether that is more than noise. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass

from jakiro.bench.report import speed_ratio
from jakiro.bench.runner import Lane, Run


@dataclass(frozen=True, slots=True)
class Lead:
    """Who is first, and whether that is more than noise.

    Attributes:
        first: the lane with the highest speed over all prompts.
        level: the others that it cannot be told from, because the interval of the ratio holds 1 or there is none.
        against: the first of them, else the second lane. ratio, interval: of `first` against it.
    """

    first: Lane
    level: tuple[Lane, ...]
    against: Lane
    ratio: float
    interval: tuple[float, float] | None


def lead(runs: Sequence[Run]) -> Lead | None:
    """Who is first over runs at one temperature, by what is written, to two digits; None for fewer than two lanes."""
    of = {lane: [run for run in runs if run.lane == lane] for lane in dict.fromkeys(run.lane for run in runs)}
    first, *others = sorted(of, key=lambda lane: _seconds_per_token(of[lane]))
    ratios = {lane: speed_ratio(of[first], of[lane]) for lane in others}
    ratios = {lane: found for lane, found in ratios.items() if found[0] is not None}
    if not ratios:
        return None
    level = tuple(lane for lane, (_, interval) in ratios.items() if interval is None or round(interval[0], 2) <= 1)
    against = level[0] if level else next(iter(ratios))
    return Lead(first, level, against, *ratios[against])


def _seconds_per_token(runs: Sequence[Run]) -> float:
    tokens = sum(run.decoded for run in runs)
    return sum(run.seconds for run in runs) / tokens if tokens else float("inf")
