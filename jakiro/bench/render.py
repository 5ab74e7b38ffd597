"""A benchmark's results for people: tables and one JSON file. Everything shown is computed in `report.py`."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from rich.table import Table

from jakiro.bench.report import FEWEST_PROMPTS, OVERALL, Group
from jakiro.bench.runner import BenchSettings, Run

SCHEMA_VERSION = 1
DEFINITIONS = (
    "tau: accepted draft tokens per step + 1, pooled, before any cut. Speedup: plain ÷ this lane, decode seconds for "
    "the same tokens, prefill excluded, the head included, against the faster plain lane; 95 % bootstrap over prompts, "
    f"from {FEWEST_PROMPTS} prompts on. End to end: the same with each lane's prefill. Tokens/s: all tokens ÷ all "
    "seconds; median and middle half are over answers. Predicted: tau · T₁ ÷ (T_draft + T_verify + T_other)."
)


def tables(groups: Sequence[Group]) -> list[Table]:
    """One table per temperature for all prompts, and one per temperature with the speedup of each category."""
    result = []
    for temperature in dict.fromkeys(group.temperature for group in groups):
        here = [group for group in groups if group.temperature == temperature]
        result.append(_overall_table(temperature, [group for group in here if group.category == OVERALL]))
        result.append(_category_table(temperature, [group for group in here if group.category != OVERALL]))
    return result


def as_json(environment: dict, settings: BenchSettings, groups: Sequence[Group], runs: Sequence[Run]) -> str:
    """Everything in one text: stamp, settings, sums, and every run with its ids, so that all can be computed again."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "definitions": DEFINITIONS,
        "environment": environment,
        "settings": settings.to_dict(),
        "groups": [asdict(group) for group in groups],
        "runs": [run.to_dict() for run in runs],
    }
    return json.dumps(values, indent=1, allow_nan=False)


def _middle(group: Group) -> str:
    enough = group.tokens_per_second and group.num_runs >= FEWEST_PROMPTS
    return _range(group.tokens_per_second[::2] if enough else None, ".1f")


# What a lane shows of all prompts
_COLUMNS: dict[str, Callable[[Group], str]] = {
    "tokens/s": lambda group: _number(group.speed, ".1f"),
    "median": lambda group: _number(group.tokens_per_second and group.tokens_per_second[1], ".1f"),
    "25–75 %": _middle,
    "τ": lambda group: _number(group.tau, ".2f"),
    "draft": lambda group: _number(group.draft_ms, ".1f"),
    "verify": lambda group: _number(group.verify_ms, ".1f"),
    "other ms": lambda group: _number(group.other_ms, ".1f"),
    "speedup": lambda group: _number(group.speedup, ".2f", "×"),
    "95 %": lambda group: _range(group.speedup_interval, ".2f"),
    "end to end": lambda group: _number(group.end_to_end, ".2f", "×"),
    "predicted": lambda group: _number(group.predicted, ".2f"),
    "same text": lambda group: _number(group.identical and 100 * group.identical, ".1f", " %"),
}


def _overall_table(temperature: float, groups: Sequence[Group]) -> Table:
    table = _table(f"Temperature {temperature:g}, all prompts", _COLUMNS)
    for group in groups:
        table.add_row(group.lane, *(cell(group) for cell in _COLUMNS.values()))
    return table


def _category_table(temperature: float, groups: Sequence[Group]) -> Table:
    """A line for each lane, of which there may be many; its speed is on one line, speedup and τ on the next."""
    categories = list(dict.fromkeys(group.category for group in groups))
    table = _table(f"Temperature {temperature:g}, by category: tokens/s, then speedup · τ", categories)
    for lane in dict.fromkeys(group.lane for group in groups):
        cells = {group.category: _cell(group) for group in groups if group.lane == lane}
        table.add_row(lane, *(cells.get(category, "–") for category in categories))
    return table


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title)
    table.add_column("method", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _cell(group: Group) -> str:
    return f"{_number(group.speed, '.1f')}\n{_number(group.speedup, '.2f', '×')} · {_number(group.tau, '.2f')}"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


def _range(values: tuple[float, float] | None, form: str) -> str:
    return "–" if values is None else f"{values[0]:{form}}–{values[1]:{form}}"
