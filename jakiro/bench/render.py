"""A benchmark's results for people: tables, one JSON file, plots. Everything shown is computed in `report.py`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from jakiro.bench.report import FEWEST_PROMPTS, OVERALL, Group
from jakiro.bench.runner import BenchSettings, Run

SCHEMA_VERSION = 1
DEFINITIONS = (
    "tau: accepted draft tokens per step + 1, pooled, before any cut. Speedup: plain ÷ this lane, decode seconds for "
    "the same tokens, prefill excluded, the head included, against the faster plain lane; 95 % bootstrap over prompts, "
    f"from {FEWEST_PROMPTS} prompts on. Tokens/s: all tokens ÷ all seconds; median and middle half are over answers. "
    "Predicted: tau · T₁ ÷ (T_draft + T_verify + T_other), in brackets without T_other."
)


def tables(groups: Sequence[Group]) -> list[Table]:
    """One table per temperature for all prompts, and one per temperature with the speedup of each category."""
    result = []
    for temperature in dict.fromkeys(group.temperature for group in groups):
        here = [group for group in groups if group.temperature == temperature]
        result.append(_overall_table(temperature, [group for group in here if group.category == OVERALL]))
        result.append(_category_table(temperature, [group for group in here if group.category != OVERALL]))
    return result


def verdicts(groups: Sequence[Group]) -> list[str]:
    """A sentence per temperature and lane: pooled speedup with its lower bound, its prediction, shares of a step."""
    sentences = []
    for group in groups:
        if group.category != OVERALL or group.other_share is None:
            continue
        parts = []
        if group.speedup_interval is not None:
            parts.append(f"pooled speedup {group.speedup:.3f}×, 95 % lower bound {group.speedup_interval[0]:.3f}")
        if group.off_prediction is not None:
            parts.append(f"{100 * group.off_prediction:+.1f} % off its prediction")
        parts.append(f"other {100 * group.other_share:.1f} % of a step, recording {100 * group.recording_share:.1f} %")
        sentences.append(f"{_label(group)}: {'; '.join(parts)}.")
    return sentences


def as_json(environment: dict, settings: BenchSettings, groups: Sequence[Group], runs: Sequence[Run]) -> str:
    """Everything in one text: stamp, settings, sums, and every run with its ids, so that all can be computed again."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "definitions": DEFINITIONS,
        "environment": environment,
        "settings": asdict(settings),
        "groups": [asdict(group) for group in groups],
        "runs": [run.to_dict() for run in runs],
    }
    return json.dumps(values, indent=1, allow_nan=False)


def write_plots(folder: Path, groups: Sequence[Group]) -> list[Path]:
    """Three png files: tokens per second, acceptance by depth, milliseconds of a step; overall groups only."""
    from matplotlib.figure import Figure

    overall = [group for group in groups if group.category == OVERALL]
    paths = []
    for name, draw in (("speed", _draw_speed), ("acceptance", _draw_acceptance), ("step", _draw_step)):
        figure = Figure(
            figsize=(8, 0.6 * len(overall) + 2.4) if name != "acceptance" else (8, 4.5), layout="constrained"
        )
        draw(figure.add_subplot(), overall)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=130)
    return paths


def _overall_table(temperature: float, groups: Sequence[Group]) -> Table:
    table = Table(title=f"Temperature {temperature:g}, all prompts")
    table.add_column("method", no_wrap=True)
    for name in (
        "tokens/s",
        "median",
        "25–75 %",
        "τ",
        "draft",
        "verify",
        "other ms",
        "speedup",
        "95 %",
        "predicted",
        "same text",
    ):
        table.add_column(name, justify="right")
    for group in groups:
        enough = group.num_runs >= FEWEST_PROMPTS
        table.add_row(
            group.lane,
            _number(group.speed, ".1f"),
            _number(group.tokens_per_second and group.tokens_per_second[1], ".1f"),
            _range(group.tokens_per_second[::2] if group.tokens_per_second and enough else None, ".1f"),
            _number(group.tau, ".2f"),
            *(_number(value, ".1f") for value in (group.draft_ms, group.verify_ms, group.other_ms)),
            _number(group.speedup, ".2f", "×"),
            _range(group.speedup_interval, ".2f"),
            "–" if group.predicted is None else f"{group.predicted:.2f} ({group.predicted_without_other:.2f})",
            "–" if group.identical is None else f"{100 * group.identical:.1f} %",
        )
    return table


def _category_table(temperature: float, groups: Sequence[Group]) -> Table:
    table = Table(title=f"Temperature {temperature:g}, by category: tokens/s · speedup · τ")
    table.add_column("category", no_wrap=True)
    lanes = list(dict.fromkeys(group.lane for group in groups))
    for lane in lanes:
        table.add_column(lane, justify="right")
    for category in dict.fromkeys(group.category for group in groups):
        cells = {group.lane: group for group in groups if group.category == category}
        table.add_row(category, *(_cell(cells[lane]) if lane in cells else "–" for lane in lanes))
    return table


def _cell(group: Group) -> str:
    return f"{_number(group.speed, '.1f')} · {_number(group.speedup, '.2f')} · {_number(group.tau, '.2f')}"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


def _range(values: tuple[float, float] | None, form: str) -> str:
    return "–" if values is None else f"{values[0]:{form}}–{values[1]:{form}}"


def _label(group: Group) -> str:
    return f"{group.lane}, T = {group.temperature:g}"


def _draw_speed(axes, groups: Sequence[Group]) -> None:
    groups = [group for group in groups if group.tokens_per_second][::-1]
    low, middle, high = zip(*(group.tokens_per_second for group in groups), strict=True) if groups else ((), (), ())
    spread = [
        [value - least for value, least in zip(middle, low, strict=True)],
        [most - value for value, most in zip(middle, high, strict=True)],
    ]
    axes.barh([_label(group) for group in groups], middle, xerr=spread, color="#4477aa", capsize=3)
    axes.set_xlabel("tokens per second, median and quartiles over answers")


def _draw_acceptance(axes, groups: Sequence[Group]) -> None:
    drawn = [group for group in groups if group.acceptance_by_depth]
    for group in drawn:
        rates = [kept / tested if tested else float("nan") for kept, tested in group.acceptance_by_depth]
        axes.plot(range(1, len(rates) + 1), rates, marker="o", label=_label(group))
    axes.set_xlabel("depth")
    axes.set_ylabel("accepted ÷ tested")
    axes.set_ylim(0, 1)
    if drawn:
        axes.legend()


def _draw_step(axes, groups: Sequence[Group]) -> None:
    groups = [group for group in groups if group.verify_ms is not None][::-1]
    labels, left = [_label(group) for group in groups], [0.0] * len(groups)
    for name, colour in (("draft", "#ccbb44"), ("verify", "#4477aa"), ("other", "#bbbbbb")):
        widths = [getattr(group, f"{name}_ms") for group in groups]
        axes.barh(labels, widths, left=left, color=colour, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_xlabel("mean milliseconds of a step")
    axes.legend()
