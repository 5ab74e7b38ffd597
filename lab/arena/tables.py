"""The leaderboard's tables in docs/arena.md, computed from the shipped raw data.

`python -m lab.arena.tables` prints them. `--own-size FOLDER` and `--same-nodes FOLDER` first convert the results of
`bench` into raw data, and `--write docs/arena.md` writes the tables into the page. A test compares them.
"""

import json
from collections.abc import Callable
from pathlib import Path

from jakiro.bench.report import OVERALL
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.system import write_atomically
from lab import raw
from lab.arena import counts
from lab.arena.standings import (
    OWN_SIZE,
    SAME_NODES,
    NodesStanding,
    SpeedStanding,
    boards,
    nodes_standings,
    speed_standings,
)
from lab.figures import brackets, folder, lead_sentence, markdown, put, table_options, where
from lab.leads import lead

UNMEASURED, LEADERBOARD = "Not measured yet.", "leaderboard.json"


def speed_tables(data: raw.Raw) -> str:
    """Return a table with one row per method, the fastest first, and a sentence on the lead at each temperature."""
    standings = [standing for standing in speed_standings(data.runs) if standing.group.category == OVERALL]
    temperatures = list(dict.fromkeys(standing.group.temperature for standing in standings))
    cells = {(standing.method, standing.group.temperature): standing for standing in standings}
    first = [standing for standing in standings if standing.group.temperature == temperatures[0]]
    names = [standing.method for standing in sorted(first, key=lambda standing: -standing.group.speed)]
    words = ("tokens/s", "against plain", "against `jakiro`", "τ", "draft + check, ms")
    columns = [f"T = {temperature:g}: {word}" for temperature in temperatures for word in words]
    rows = [
        [f"`{name}`", *(cell for temperature in temperatures for cell in _speed_cells(cells[name, temperature]))]
        for name in names
    ]
    leads = []
    for temperature in temperatures:
        result = lead([run for run in data.runs if run.temperature == temperature])
        leads.append(lead_sentence(result, lambda lane: f"`{lane.method}`", f"at temperature {temperature:g}"))
    return "\n\n".join([where(data), markdown(["", *columns], rows), "\n".join(leads)])


def tau_table(path: Path) -> str:
    """Return a table of τ and accepted levels of every method and size, the highest τ first."""
    values, answers = counts.read(path)
    standings = nodes_standings(answers)
    columns = list(dict.fromkeys((standing.temperature, standing.nodes) for standing in standings))
    cells = {(standing.method, standing.temperature, standing.nodes): standing for standing in standings}
    first = [standing for standing in standings if (standing.temperature, standing.nodes) == columns[0]]
    methods = [standing.method for standing in sorted(first, key=lambda standing: -standing.tau)]
    rows = [[f"`{name}`", *(_tau_cell(cells[name, *column]) for column in columns)] for name in methods]
    stamp, settings = values["environment"], values["settings"]
    prompts = len({answer.question_id for answer in answers})
    return (
        f"{prompts} prompts, at most {settings['max_new_tokens']} new tokens, head `{stamp['head']}`, {stamp['dtype']} "
        f"passes, run of {stamp['date'][:10]}. Brackets: 95 % bootstrap interval over prompts; then the share of "
        f"tested levels that was accepted.\n\n"
        f"{markdown(['', *(f'τ, T = {temperature:g}, {nodes} nodes' for temperature, nodes in columns)], rows)}"
    )


# Raw data of each table, the function that reduces a benchmark to it, and the function that makes the table of it
BLOCKS: dict[str, tuple[str, Callable[[dict], str], Callable[[Path], str]]] = {
    "own-size": (OWN_SIZE, raw.compact, lambda path: speed_tables(raw.read(path))),
    "same-nodes": (SAME_NODES, counts.compact, tau_table),
}


def block(name: str) -> str:
    """Return a table as it appears in the page, or a sentence if it was not measured."""
    file, _, table = BLOCKS[name]
    path = folder() / file
    return table(path) if path.is_file() else UNMEASURED


def leaderboard() -> str:
    """Return the page's leaderboard as JSON."""
    return json.dumps(boards(folder()), ensure_ascii=False, separators=(",", ":")) + "\n"


def take(name: str, bench: Path) -> None:
    """Convert the result folder of a `bench` into the raw data of a table."""
    file, compact, _ = BLOCKS[name]
    values = json.loads((bench / "bench.json").read_text(encoding="utf-8"))
    write_atomically(folder() / file, compact(values))


def _speed_cells(standing: SpeedStanding) -> list[str]:
    group = standing.group
    plain, default = standing.method == PLAIN.name, standing.method == DEFAULT.name
    return [
        f"{group.speed:.1f}",
        "1×" if plain else _times(group.speedup) + brackets(group.speedup_interval),
        "1×" if default else _times(standing.against_default) + brackets(standing.against_default_interval),
        f"{group.tau:.2f}",
        f"{group.draft_ms:.1f} + {group.verify_ms:.1f}",
    ]


def _tau_cell(standing: NodesStanding) -> str:
    accepted = "–" if standing.acceptance is None else f"{100 * standing.acceptance:.0f} %"
    return f"{standing.tau:.2f}{brackets(standing.tau_interval)} · {accepted}"


def _times(value: float) -> str:
    return f"{value:.2f}×"


def main() -> None:
    parser = table_options("Print or write the leaderboard's tables, computed from the shipped raw data.")
    parser.add_argument("--own-size", type=Path, metavar="FOLDER", help="convert this result of bench into raw data")
    parser.add_argument("--same-nodes", type=Path, metavar="FOLDER", help="convert this result of bench into raw data")
    chosen = parser.parse_args()
    for name, bench in (("own-size", chosen.own_size), ("same-nodes", chosen.same_nodes)):
        if bench is not None:
            take(name, bench)
    put({name: block(name) for name in BLOCKS}, chosen.write)
    if chosen.write:
        write_atomically(folder() / LEADERBOARD, leaderboard())


if __name__ == "__main__":
    main()
