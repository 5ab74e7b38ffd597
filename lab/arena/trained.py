"""Comparison of trained drafters: the tables of docs/fair-play.md, computed from the shipped raw data.

`python -m lab.arena.trained` prints the tables. `--scores FILE …` first converts results of `evaluate` that
`lab.arena.passes` has extended (one file per head), `--speeds FOLDER` the result of a `bench` with heads of equal
training time. `--time` measures drafts by number of levels on this machine, which should be quiet. `--write
docs/fair-play.md` writes the tables into the page. A test compares them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jakiro.bench.environment import environment
from jakiro.bench.report import resampled_interval
from jakiro.decode import device_profile as costs
from jakiro.drafters.registry import DEFAULT
from jakiro.generator import JakiroGenerator
from jakiro.system import write_atomically
from lab import raw
from lab.arena.tables import speed_tables
from lab.figures import brackets, folder, markdown, put, table_options

SCORES, TIMES, SPEEDS = "heads-equal-minutes.json", "heads-draft-ms.json", "heads-equal-minutes-speed.json"
# Scores of the same heads after 20 minutes of training
EARLY_SCORES = "heads-20-minutes.json"
UNMEASURED = "Not measured yet."
# The tree of the tables of passes: nodes, temperature, levels
NODES, TEMPERATURE, LEVELS = 14, 0.0, 5
# Rows of the timed target passes, and candidates per level of the drafts
ROWS, WIDTH = (1, 2, 4, 6, 8, 10, 12, 14, 20, 24, 28, 42, 56, 64), 8
_KEPT = ("method", "temperature", "nodes", "passes", "acceptance_by_depth", "prompts")


@dataclass(frozen=True, slots=True)
class Replayed:
    """Answers replayed with the trees of one head and size.

    Attributes:
        passes: serial passes of the head in the mean step.
        acceptance_by_depth: (accepted, tested) steps for depth 1, 2, …
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
    def is_compared(self) -> bool:
        """Whether the tables of passes show this temperature and tree size."""
        return (self.temperature, self.nodes) == (TEMPERATURE, NODES)

    @property
    def accepted_shares(self) -> list[float]:
        """Share of steps that accept a draft token at each depth, down to the deepest tested one."""
        return [accepted / self.acceptance_by_depth[0][1] for accepted, _ in self.acceptance_by_depth[:LEVELS]]


def take(files: Sequence[Path]) -> None:
    """Convert results of `evaluate --out` with passes into raw data; heads keep the order of the files.

    Raises:
        ValueError: a file has no passes.
    """
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    overall = [[score for score in values["scores"] if score["category"] == "all"] for values in contents]
    for path, scores in zip(files, overall, strict=True):
        if any("passes" not in score for score in scores):
            raise ValueError(f"{path.name} has no passes yet; count them with `python -m lab.arena.passes`.")
    rows = [[score[name] for name in _KEPT] for scores in overall for score in scores]
    heads = {values["scores"][0]["method"]: values["head"] for values in contents}
    head = {"target": contents[0]["target"], "settings": contents[0]["settings"], "heads": heads, "columns": _KEPT}
    write_atomically(folder() / SCORES, raw.lines(head, "scores", rows))


def take_speeds(bench: Path) -> None:
    """Convert the result folder of a `bench` into raw data."""
    values = json.loads((bench / "bench.json").read_text(encoding="utf-8"))
    write_atomically(folder() / SPEEDS, raw.compact(values))


def read(scores: str = SCORES) -> list[Replayed]:
    """Read a file written by `take`."""
    return [Replayed(**row) for row in raw.read_rows(folder() / scores, "scores")["scores"]]


def time_drafts(generator: JakiroGenerator) -> None:
    """Measure target passes by rows, and drafts by levels of every method with its own head."""
    drafters = {method.name: generator.drafter(method) for method in generator.methods if method.trains is not None}
    passes = costs.time_passes(generator.backend, drafters[DEFAULT.name], ROWS)
    drafts = [
        [name, costs.time_drafts(generator.backend, drafter, range(1, 9), WIDTH)] for name, drafter in drafters.items()
    ]
    head = {"environment": environment(generator.status), "width": WIDTH, "verify_ms": passes}
    write_atomically(folder() / TIMES, raw.lines(head, "draft_ms", drafts))


def taus(rows: Sequence[Replayed]) -> str:
    """Return a table of τ of every head and size, and the difference of the first head to each other head."""
    columns = list(dict.fromkeys((row.temperature, row.nodes) for row in rows))
    cells = {(row.method, row.temperature, row.nodes): row for row in rows}
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = [[f"`{name}`", *(f"{cells[name, *column].tau:.2f}" for column in columns)] for name in methods]
    for name in methods[1:]:
        pairs = [(cells[methods[0], *column], cells[name, *column]) for column in columns]
        lines.append([f"`{methods[0]}` − `{name}`", *(_difference(*pair) for pair in pairs)])
    titles = [f"T = {temperature:g}, {nodes} nodes" for temperature, nodes in columns]
    note = f"{len(rows[0].prompts)} prompts. Brackets: 95 % bootstrap interval of the difference over prompts."
    return f"{markdown(['τ', *titles], lines)}\n\n{note}"


def by_depth(rows: Sequence[Replayed]) -> str:
    """Return a table of passes per step and the share of steps that accept a draft token at each depth."""
    shares = {row.method: [f"{100 * share:.0f} %" for share in row.accepted_shares] for row in rows if row.is_compared}
    cells = {method: values + ["–"] * (LEVELS - len(values)) for method, values in shares.items()}
    note = (
        "Serial passes in the mean step, and the share of steps that accept a draft token at each depth; "
        f"temperature {TEMPERATURE:g}, {NODES} nodes."
    )
    return _pass_table(rows, [f"depth {depth}" for depth in range(1, LEVELS + 1)], cells, note)


def steps(rows: Sequence[Replayed], times: Mapping) -> str:
    """Return a table of passes per step and milliseconds by levels."""
    costs = {name: dict(map(tuple, curve)) for name, curve in times["draft_ms"]}
    cells = {name: [f"{curve[level]:.1f}" for level in range(1, LEVELS + 1)] for name, curve in costs.items()}
    stamp = times["environment"]
    note = (
        f"Serial passes in the mean step, temperature {TEMPERATURE:g}, {NODES} nodes; milliseconds of a "
        f"draft by levels, at most {times['width']} nodes a level, on {stamp['cpu']}, {stamp['threads']} threads, "
        f"run of {stamp['date'][:10]}."
    )
    return _pass_table(rows, [f"{level} level{'s' * (level > 1)}" for level in range(1, LEVELS + 1)], cells, note)


def _pass_table(rows: Sequence[Replayed], titles: Sequence[str], cells: Mapping[str, Sequence[str]], note: str) -> str:
    """Return a table with a row for each method: passes per step, then its `cells`. The note follows the table."""
    lines = [[f"`{row.method}`", f"{row.passes:.2f}", *cells[row.method]] for row in rows if row.is_compared]
    return f"{markdown(['', 'passes', *titles], lines)}\n\n{note}"


def blocks() -> dict[str, str]:
    """Return the tables by name, with a sentence instead of a table without raw data."""
    rows, early = (read(name) if (folder() / name).is_file() else [] for name in (SCORES, EARLY_SCORES))
    times, speeds = folder() / TIMES, folder() / SPEEDS
    timed = rows and times.is_file()
    return {
        "equal-minutes": taus(rows) if rows else UNMEASURED,
        "after-20-minutes": taus(early) if early else UNMEASURED,
        "by-depth": by_depth(rows) if rows else UNMEASURED,
        "serial-passes": steps(rows, json.loads(times.read_text(encoding="utf-8"))) if timed else UNMEASURED,
        "equal-minutes-speed": speed_tables(raw.read(speeds)) if speeds.is_file() else UNMEASURED,
    }


def _tau(num_steps, num_accepted):
    return num_accepted / num_steps + 1


def _difference(head: Replayed, baseline: Replayed) -> str:
    """Return the difference of τ with its interval over the prompts that both heads have read."""
    pairs = [(*ours, *theirs) for ours, theirs in zip(head.prompts, baseline.prompts, strict=True)]
    interval = resampled_interval(
        pairs,
        lambda steps, accepted, base_steps, base_accepted: _tau(steps, accepted) - _tau(base_steps, base_accepted),
    )
    return f"{head.tau - baseline.tau:+z.2f}{brackets(interval)}"


def main() -> None:
    parser = table_options("Compare trained drafters, from the shipped raw data.")
    parser.add_argument("--scores", type=Path, nargs="+", metavar="FILE", help="convert results of evaluate")
    parser.add_argument("--speeds", type=Path, metavar="FOLDER", help="convert this result of bench")
    parser.add_argument("--time", action="store_true", help="measure drafts by levels on this machine")
    chosen = parser.parse_args()
    if chosen.scores:
        take(chosen.scores)
    if chosen.speeds:
        take_speeds(chosen.speeds)
    if chosen.time:
        time_drafts(JakiroGenerator.from_pretrained())
    put(blocks(), chosen.write)


if __name__ == "__main__":
    main()
