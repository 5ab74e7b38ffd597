"""Who stands where: every method in one discipline, by temperature and category, with intervals. Pure arithmetic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jakiro.bench.report import OVERALL, Group, resampled_interval, speed_ratio, summarise
from jakiro.bench.runner import Run
from jakiro.drafters.registry import DEFAULT, METHODS
from lab import raw
from lab.arena import counts
from lab.arena.counts import Counts
from lab.leads import lead

OWN_SIZE, SAME_NODES = "arena-own-size.json", "arena-same-nodes.json"
Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class SpeedStanding:
    """A method with trees of its own best size.

    Attributes:
        speed: tokens per second; `group` has the report's other numbers, speedup against plain decoding among them.
        against_default: how many times as fast as `jakiro` over the same prompts, with its 95 % interval.
        ahead: prompts at which it is faster than `jakiro`.
        tau_interval: 95 %, by resampling prompts.
    """

    method: str
    temperature: float
    category: str
    group: Group
    against_default: float | None
    against_default_interval: Interval
    ahead: int
    tau_interval: Interval

    @property
    def speed(self) -> float:
        return self.group.speed

    def to_dict(self) -> dict:
        """What the page shows."""
        shown = ("speed", "speedup", "speedup_interval", "tau", "draft_ms", "verify_ms", "other_ms", "identical")
        return {
            "method": self.method,
            "temperature": self.temperature,
            "category": self.category,
            "prompts": self.group.num_runs,
            **{name: _short(getattr(self.group, name)) for name in shown},
            "tau_interval": _short(self.tau_interval),
            "against": _short(self.against_default),
            "against_interval": _short(self.against_default_interval),
        }


@dataclass(frozen=True, slots=True)
class NodesStanding:
    """A method with trees of a given size.

    Attributes:
        tau: accepted per step + 1, pooled over steps, before any cut; with a 95 % interval by resampling prompts.
        acceptance: levels that were kept ÷ levels that had a candidate to try.
        identical: share of answers whose ids all equal plain decoding's; None where they were not compared.
    """

    method: str
    nodes: int
    temperature: float
    category: str
    prompts: int
    tau: float
    tau_interval: Interval
    acceptance: float | None
    identical: float | None

    def to_dict(self) -> dict:
        """What the page shows."""
        return {name: _short(getattr(self, name)) for name in self.__dataclass_fields__}


def speed_standings(runs: Sequence[Run]) -> list[SpeedStanding]:
    """Every method, plain decoding included, as the report groups its runs."""
    found = []
    for group in summarise(runs):
        members = [
            run for run in runs if run.temperature == group.temperature and group.category in (OVERALL, run.category)
        ]
        own = [run for run in members if run.lane.name == group.lane]
        default = [run for run in members if run.lane.method == DEFAULT.name]
        ratio, interval = speed_ratio(own, default)
        found.append(
            SpeedStanding(
                method=own[0].lane.method,
                temperature=group.temperature,
                category=group.category,
                group=group,
                against_default=ratio,
                against_default_interval=interval,
                ahead=_ahead(own, default),
                tau_interval=_tau_interval((run.question_id, run.num_accepted, run.num_steps) for run in own),
            )
        )
    return found


def nodes_standings(answers: Sequence[Counts]) -> list[NodesStanding]:
    """Every method at every size; over all prompts first, then by category."""
    groups: dict[tuple, list[Counts]] = {}
    for category in (OVERALL, *dict.fromkeys(answer.category for answer in answers)):
        for answer in answers:
            if category in (OVERALL, answer.category):
                key = (answer.method, answer.nodes, answer.temperature, category)
                groups.setdefault(key, []).append(answer)
    return [_nodes_standing(*key, own) for key, own in groups.items()]


def boards(folder: Path) -> dict:
    """The disciplines whose raw data lies in a folder, as the page shows them; the product's methods alone lead."""
    found = {}
    if (path := folder / OWN_SIZE).is_file():
        data = raw.read(path)
        runs = [run for run in data.runs if run.lane.method in METHODS]
        rows = [standing.to_dict() for standing in speed_standings(data.runs)]
        found["own_size"] = {
            "environment": data.environment, "settings": data.settings, "rows": rows, "leads": leads(runs),
        }  # fmt: skip
    if (path := folder / SAME_NODES).is_file():
        data = counts.read(path)
        rows = [standing.to_dict() for standing in nodes_standings(data.answers)]
        sizes = list(dict.fromkeys(answer.nodes for answer in data.answers))
        found["same_nodes"] = {
            "environment": data.environment, "settings": data.settings, "sizes": sizes, "rows": rows,
        }  # fmt: skip
    return found


def leads(runs: Sequence[Run]) -> list[dict]:
    """Who is first at each temperature, as the page says it."""
    found = []
    for temperature in dict.fromkeys(run.temperature for run in runs):
        first = lead([run for run in runs if run.temperature == temperature])
        if first is not None:
            found.append(
                {
                    "temperature": temperature,
                    "method": first.first.method,
                    "level": [lane.method for lane in first.level],
                    "against": first.against.method,
                    "times": _short(first.ratio),
                    "interval": _short(first.interval),
                }
            )
    return found


def _nodes_standing(method: str, nodes: int, temperature: float, category: str, own: list[Counts]) -> NodesStanding:
    accepted, steps, tested = (
        sum(getattr(answer, name) for answer in own) for name in ("num_accepted", "num_steps", "num_tested")
    )
    compared = [answer.same for answer in own if answer.same is not None]
    return NodesStanding(
        method=method,
        nodes=nodes,
        temperature=temperature,
        category=category,
        prompts=len({answer.question_id for answer in own}),
        tau=accepted / steps + 1,
        tau_interval=_tau_interval((answer.question_id, answer.num_accepted, answer.num_steps) for answer in own),
        acceptance=accepted / tested if tested else None,
        identical=sum(compared) / len(compared) if compared else None,
    )


def _tau_interval(answers: Iterator[tuple[str, int, int]]) -> Interval:
    """Of (prompt, accepted, steps)."""
    sums: dict[str, list[int]] = {}
    for prompt, accepted, steps in answers:
        total = sums.setdefault(prompt, [0, 0])
        total[0] += accepted
        total[1] += steps
    return resampled_interval(list(sums.values()), lambda accepted, steps: accepted / steps + 1)


def _ahead(own: Sequence[Run], others: Sequence[Run]) -> int:
    prompts = dict.fromkeys(run.question_id for run in own)
    ratios = (
        speed_ratio(*([run for run in side if run.question_id == prompt] for side in (own, others)))[0]
        for prompt in prompts
    )
    return sum(ratio is not None and ratio > 1 for ratio in ratios)


def _short(value):
    """Numbers with the digits that anything shown needs."""
    if isinstance(value, tuple):
        return [_short(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value
