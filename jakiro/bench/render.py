"""Results of a benchmark as tables and as one JSON file. All figures are computed in `report.py`."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from rich import box
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


def tables(groups: Sequence[Group]) -> Iterator[Table]:
    """Yield three tables per temperature: speed and steps over all prompts, and speed by category.

    All fit into 80 characters, because results are often read in a terminal of that width or in a pipe.
    """
    for temperature in dict.fromkeys(group.temperature for group in groups):
        members = [group for group in groups if group.temperature == temperature]
        overall = [group for group in members if group.category == OVERALL]
        by_category = [group for group in members if group.category != OVERALL]
        by_category.sort(key=lambda group: [member.lane for member in overall].index(group.lane))
        yield _table(f"Temperature {temperature:g}, all prompts: speed", overall, _SPEED_COLUMNS)
        yield _table(f"Temperature {temperature:g}, all prompts: steps", overall, _STEP_COLUMNS)
        yield _table(f"Temperature {temperature:g}, by category", by_category, _CATEGORY_COLUMNS, True)


def as_json(environment: dict, settings: BenchSettings, groups: Sequence[Group], runs: Sequence[Run]) -> str:
    """Return the content of bench.json: environment, settings, groups, and every run with its token ids."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "definitions": DEFINITIONS,
        "environment": environment,
        "settings": settings.to_dict(),
        "groups": [asdict(group) for group in groups],
        "runs": [run.to_dict() for run in runs],
    }
    return json.dumps(values, indent=1, allow_nan=False)


def _middle_half(group: Group) -> str:
    enough = group.tokens_per_second and group.num_runs >= FEWEST_PROMPTS
    return _range(group.tokens_per_second[::2] if enough else None, ".1f")


_COLUMNS: dict[str, Callable[[Group], str]] = {
    "tokens/s": lambda group: _number(group.speed, ".1f"),
    "median": lambda group: _number(group.tokens_per_second and group.tokens_per_second[1], ".1f"),
    "25–75 %": _middle_half,
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
_SPEED_COLUMNS = ("tokens/s", "speedup", "95 %", "end to end", "same text")
_STEP_COLUMNS = ("τ", "draft", "verify", "other ms", "predicted", "median", "25–75 %")
_CATEGORY_COLUMNS = ("tokens/s", "speedup", "95 %", "τ")


def _table(title: str, groups: Sequence[Group], columns: Sequence[str], with_category: bool = False) -> Table:
    """Return a table with one row per group; long method names are wrapped, numbers are not."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    if with_category:
        table.add_column("category", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for group in groups:
        names = (group.lane, group.category) if with_category else (group.lane,)
        table.add_row(*names, *(_COLUMNS[name](group) for name in columns))
    return table


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


def _range(values: tuple[float, float] | None, form: str) -> str:
    return "–" if values is None else f"{values[0]:{form}}–{values[1]:{form}}"
