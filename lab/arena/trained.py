"""Trained drafters side by side: the tables of docs/fair-play.md and their plots, from the raw data that ships.

`python -m lab.arena.trained` prints the tables. `--scores FILE …` first makes the raw data of what `evaluate` wrote and
`lab.arena.passes` added to, one file a head, `--speeds FOLDER` of what `bench` measured with heads of equal minutes;
`--time` measures what drafts of so many levels cost on this machine, which should be quiet. `--write docs/fair-play.md`
puts the tables into their places, `--chart FILE` draws the plots. A test compares them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jakiro.bench.environment import environment
from jakiro.bench.report import resampled_interval
from jakiro.decode import device_profile as costs
from jakiro.drafters.registry import DEFAULT
from jakiro.figures import line_style, marker_style, plain_text, role_of, styled
from jakiro.generator import JakiroGenerator
from jakiro.system import write_atomically
from lab import raw
from lab.arena.tables import speed_tables
from lab.charts import share_lines, write_charts
from lab.figures import brackets, folder, markdown, put, table_options

SCORES, TIMES, SPEEDS = "heads-equal-minutes.json", "heads-draft-ms.json", "heads-equal-minutes-speed.json"
# What the same five were worth when each had had 20 minutes
EARLY_SCORES = "heads-20-minutes.json"
UNMEASURED = "Not measured yet."
# The tree that plots and tables of passes are about: nodes, temperature, levels
NODES, TEMPERATURE, LEVELS = 14, 0.0, 5
# Rows of the target's passes that are timed, and candidates a level of the drafts
ROWS, WIDTH = (1, 2, 4, 6, 8, 10, 12, 14, 20, 24, 28, 42, 56, 64), 8
_KEPT = ("method", "temperature", "nodes", "passes", "acceptance_by_depth", "prompts")


@dataclass(frozen=True, slots=True)
class Replayed:
    """A head's answers replayed with trees of one size.

    Attributes:
        passes: of the head, one after the other, in the mean step.
        acceptance_by_depth: (kept, tested) steps for depth 1, 2, …
        prompts: (steps, accepted draft tokens) of each prompt.
    """

    method: str
    temperature: float
    nodes: int
    passes: float
    acceptance_by_depth: Sequence[tuple[int, int]]
    prompts: Sequence[tuple[int, int]]

    @property
    def tau(self) -> float:
        return _tau(*map(sum, zip(*self.prompts, strict=True)))

    @property
    def kept(self) -> list[float]:
        """The share of steps that keep a draft token at each depth, as deep as any step had one to try."""
        return [kept / self.acceptance_by_depth[0][1] for kept, _ in self.acceptance_by_depth[:LEVELS]]


def take(files: Sequence[Path]) -> None:
    """Makes the raw data of what `evaluate --out` wrote, with passes; heads keep the order of the files.

    Raises:
        ValueError: a file lacks the passes.
    """
    given = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    for path, values in zip(files, given, strict=True):
        if any("passes" not in score for score in values["scores"] if score["category"] == "all"):
            raise ValueError(f"{path.name} has no passes yet; count them with `python -m lab.arena.passes`.")
    rows = [
        [score[name] for name in _KEPT] for values in given for score in values["scores"] if score["category"] == "all"
    ]
    heads = {values["scores"][0]["method"]: values["head"] for values in given}
    head = {"target": given[0]["target"], "settings": given[0]["settings"], "heads": heads, "columns": _KEPT}
    write_atomically(folder() / SCORES, raw.lines(head, "scores", rows))


def take_speeds(bench: Path) -> None:
    """Makes the raw data of what `bench` wrote into a folder."""
    values = json.loads((bench / "bench.json").read_text(encoding="utf-8"))
    write_atomically(folder() / SPEEDS, raw.compact(values))


def read(scores: str = SCORES) -> list[Replayed]:
    """What `take` wrote."""
    values = json.loads((folder() / scores).read_text(encoding="utf-8"))
    return [Replayed(**dict(zip(values["columns"], row, strict=True))) for row in values["scores"]]


def time_drafts(generator: JakiroGenerator) -> None:
    """Measures passes of the target by nodes, and drafts by levels of every method with a head of its own."""
    drafters = {each.name: generator.drafter(each) for each in generator.methods if each.trains is not None}
    passes = costs.time_passes(generator.target, drafters[DEFAULT.name], ROWS)
    drafts = [
        [name, costs.time_drafts(generator.target, drafter, range(1, 9), WIDTH)] for name, drafter in drafters.items()
    ]
    head = {"environment": environment(generator.status), "width": WIDTH, "verify_ms": passes}
    write_atomically(folder() / TIMES, raw.lines(head, "draft_ms", drafts))


def taus(rows: Sequence[Replayed]) -> str:
    """τ of every head at every size, and what the two experts bring against the dense one."""
    columns = list(dict.fromkeys((row.temperature, row.nodes) for row in rows))
    found = {(row.method, row.temperature, row.nodes): row for row in rows}
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = [[f"`{name}`", *(f"{found[name, *column].tau:.2f}" for column in columns)] for name in methods]
    for name in methods[1:]:
        pairs = [(found[methods[0], *column], found[name, *column]) for column in columns]
        lines.append([f"`{methods[0]}` − `{name}`", *(_difference(*pair) for pair in pairs)])
    titles = [f"T = {temperature:g}, {nodes} nodes" for temperature, nodes in columns]
    note = f"{len(rows[0].prompts)} prompts. Brackets: 95 % bootstrap interval of the difference over prompts."
    return f"{markdown(['τ', *titles], lines)}\n\n{note}"


def by_depth(rows: Sequence[Replayed]) -> str:
    """Passes a step, and how many of the steps keep a draft token at each depth."""
    lines = [
        [f"`{row.method}`", f"{row.passes:.2f}", *(f"{100 * share:.0f} %" for share in row.kept)]
        + ["–"] * (LEVELS - len(row.kept))
        for row in _of_one_tree(rows)
    ]
    titles = [f"depth {depth}" for depth in range(1, LEVELS + 1)]
    note = (
        "Passes one after the other in the mean step, and the share of steps that keep a draft token at each depth; "
        f"temperature {TEMPERATURE:g}, {NODES} nodes."
    )
    return f"{markdown(['', 'passes', *titles], lines)}\n\n{note}"


def _of_one_tree(rows: Sequence[Replayed]) -> list[Replayed]:
    return [row for row in rows if (row.temperature, row.nodes) == (TEMPERATURE, NODES)]


def steps(rows: Sequence[Replayed], times: Mapping) -> str:
    """Passes a step and milliseconds by levels."""
    costs = {name: dict(map(tuple, curve)) for name, curve in times["draft_ms"]}
    lines = [
        [f"`{row.method}`", f"{row.passes:.2f}", *(f"{costs[row.method][level]:.1f}" for level in range(1, LEVELS + 1))]
        for row in _of_one_tree(rows)
    ]
    levels = [f"{level} level{'s' * (level > 1)}" for level in range(1, LEVELS + 1)]
    stamp = times["environment"]
    note = (
        f"Passes one after the other in the mean step, temperature {TEMPERATURE:g}, {NODES} nodes; milliseconds of a "
        f"draft by levels, at most {times['width']} nodes a level, on {stamp['cpu']}, {stamp['threads']} threads, "
        f"run of {stamp['date'][:10]}."
    )
    return f"{markdown(['', 'passes', *levels], lines)}\n\n{note}"


def blocks() -> dict[str, str]:
    """The tables by name, each from its raw data, whether that was measured or not."""
    rows, early = (read(name) if (folder() / name).is_file() else [] for name in (SCORES, EARLY_SCORES))
    timed, speeds = rows and (folder() / TIMES).is_file(), folder() / SPEEDS
    return {
        "equal-minutes": taus(rows) if rows else UNMEASURED,
        "after-20-minutes": taus(early) if early else UNMEASURED,
        "by-depth": by_depth(rows) if rows else UNMEASURED,
        "serial-passes": steps(rows, _times()) if timed else UNMEASURED,
        "equal-minutes-speed": speed_tables(raw.read(speeds)) if speeds.is_file() else UNMEASURED,
    }


def figures(rows: Sequence[Replayed], times: Mapping) -> list:
    """Passes a step, milliseconds by levels, and kept levels by depth."""
    from plotly.graph_objects import Bar, Scatter

    here = _of_one_tree(rows)
    names = [plain_text(row.method) for row in here]
    about = f"temperature {TEMPERATURE:g}, {NODES} nodes"
    passes = styled(
        [Bar(x=[row.passes for row in here], y=names, orientation="h", marker={"color": line_style("main")["color"]})],
        "Passes one after the other in a step",
        f"passes, {about}",
        height=140 + 30 * len(names),
    ).update_yaxes(autorange="reversed")
    curves = [(row.method, dict(times["draft_ms"])[row.method]) for row in here]
    drafts = styled(
        [
            Scatter(
                x=[level for level, _ in curve[:LEVELS]], y=[cost for _, cost in curve[:LEVELS]], mode="lines+markers",
                name=plain_text(name), line=line_style(role_of(place)), marker=marker_style(role_of(place)),
            )
            for place, (name, curve) in enumerate(curves)
        ],
        "Milliseconds of a draft",
        "levels",
        "ms",
    ).update_yaxes(rangemode="tozero").update_xaxes(dtick=1)  # fmt: skip
    depth = share_lines(
        "Steps that keep a draft token at each depth",
        f"depth, {about}",
        "share",
        [*range(1, LEVELS + 1)],
        {row.method: row.kept for row in here},
    ).update_xaxes(dtick=1)
    return [passes, drafts, depth]


def _times() -> dict:
    return json.loads((folder() / TIMES).read_text(encoding="utf-8"))


def _tau(num_steps, num_accepted):
    return num_accepted / num_steps + 1


def _difference(own: Replayed, other: Replayed) -> str:
    """Of τ, with its interval over the prompts, which both have read."""
    pairs = [(*left, *right) for left, right in zip(own.prompts, other.prompts, strict=True)]
    interval = resampled_interval(
        pairs, lambda steps, accepted, others, theirs: _tau(steps, accepted) - _tau(others, theirs)
    )
    return f"{own.tau - other.tau:+z.2f}{brackets(interval)}"


def main() -> None:
    parser = table_options("Trained drafters side by side, from the raw data that ships.")
    parser.add_argument("--scores", type=Path, nargs="+", metavar="FILE", help="take what evaluate --out wrote")
    parser.add_argument("--speeds", type=Path, metavar="FOLDER", help="take what bench wrote")
    parser.add_argument("--time", action="store_true", help="measure drafts by levels on this machine")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the plots to this html file")
    chosen = parser.parse_args()
    if chosen.scores:
        take(chosen.scores)
    if chosen.speeds:
        take_speeds(chosen.speeds)
    if chosen.time:
        time_drafts(JakiroGenerator.from_pretrained())
    if chosen.chart is not None:
        write_charts(chosen.chart, "Trained drafters", figures(read(), _times()))
    put(blocks(), chosen.write)


if __name__ == "__main__":
    main()
