"""Statistics of every method by temperature and category, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jakiro.bench.report import OVERALL, Group, resampled_interval, speed_ratio, summarise
from jakiro.bench.runner import Run
from jakiro.drafters.registry import DEFAULT, METHODS
from lab import raw
from lab.arena.counts import Counts
from lab.leads import lead

OWN_SIZE, SAME_NODES = "arena-own-size.json", "arena-same-nodes.json"
Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class SpeedStanding:
    """A method whose trees have their own best size.

    Attributes:
        group: the statistics of `jakiro.bench.report`, such as the speedup against plain decoding.
        against_default, against_default_interval: speed ÷ speed of `jakiro` over the same prompts, 95 % interval.
        tau_interval: 95 % interval by resampling prompts.
    """

    method: str
    group: Group
    against_default: float | None
    against_default_interval: Interval
    tau_interval: Interval

    def to_dict(self) -> dict:
        """Return the values that the page shows."""
        group = self.group
        names = ("speed", "speedup", "speedup_interval", "tau", "draft_ms", "verify_ms", "other_ms", "identical")
        return {
            "method": self.method,
            "temperature": group.temperature,
            "category": group.category,
            "prompts": group.num_runs,
            **{name: _short(getattr(group, name)) for name in names},
            "tau_interval": _short(self.tau_interval),
            "against": _short(self.against_default),
            "against_interval": _short(self.against_default_interval),
        }


@dataclass(frozen=True, slots=True)
class NodesStanding:
    """A method with trees of a given number of nodes, over all prompts.

    Attributes:
        tau: accepted tokens per step + 1, pooled over steps before any cut, with a 95 % interval by resampling prompts.
        acceptance: accepted levels ÷ tested levels.
    """

    method: str
    nodes: int
    temperature: float
    tau: float
    tau_interval: Interval
    acceptance: float | None


def speed_standings(runs: Sequence[Run]) -> list[SpeedStanding]:
    """Return the standings of every method, plain decoding included, in the order of the report's groups."""
    standings = []
    for group in summarise(runs):
        members = [run for run in runs if run.temperature == group.temperature]
        if group.category != OVERALL:
            members = [run for run in members if run.category == group.category]
        runs_of_lane = [run for run in members if run.lane.name == group.lane]
        default = [run for run in members if run.lane.method == DEFAULT.name]
        ratio = speed_ratio(runs_of_lane, default)
        standings.append(SpeedStanding(runs_of_lane[0].lane.method, group, *ratio, _tau_interval(runs_of_lane)))
    return standings


def nodes_standings(answers: Sequence[Counts]) -> list[NodesStanding]:
    """Return the standings of every method, size and temperature."""
    groups: dict[tuple, list[Counts]] = {}
    for answer in answers:
        groups.setdefault((answer.method, answer.nodes, answer.temperature), []).append(answer)
    standings = []
    for key, members in groups.items():
        accepted, steps, tested = (
            sum(getattr(answer, name) for answer in members) for name in ("num_accepted", "num_steps", "num_tested")
        )
        acceptance = accepted / tested if tested else None
        standings.append(NodesStanding(*key, accepted / steps + 1, _tau_interval(members), acceptance))
    return standings


def boards(folder: Path) -> dict:
    """Return the leaderboard in the page's format; only methods of the package take part in `leads`."""
    if not (path := folder / OWN_SIZE).is_file():
        return {}
    data = raw.read(path)
    runs = [run for run in data.runs if run.lane.method in METHODS]
    rows = [standing.to_dict() for standing in speed_standings(data.runs)]
    board = {"environment": data.environment, "settings": data.settings, "rows": rows, "leads": leads(runs)}
    return {"own_size": board}


def leads(runs: Sequence[Run]) -> list[dict]:
    """Return the fastest method at each temperature in the page's format."""
    temperatures = dict.fromkeys(run.temperature for run in runs)
    by_temperature = {value: lead([run for run in runs if run.temperature == value]) for value in temperatures}
    return [
        {
            "temperature": temperature,
            "method": result.first.method,
            "level": [lane.method for lane in result.level],
            "against": result.against.method,
            "times": _short(result.ratio),
            "interval": _short(result.interval),
        }
        for temperature, result in by_temperature.items()
        if result is not None
    ]


def _tau_interval(answers: Sequence[Run] | Sequence[Counts]) -> Interval:
    """Return the interval of τ by resampling prompts."""
    sums: dict[str, list[int]] = {}
    for answer in answers:
        total = sums.setdefault(answer.question_id, [0, 0])
        total[0] += answer.num_accepted
        total[1] += answer.num_steps
    return resampled_interval(list(sums.values()), lambda accepted, steps: accepted / steps + 1)


def _short(value):
    """Round numbers to the digits that are shown."""
    if isinstance(value, tuple):
        return [_short(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value
