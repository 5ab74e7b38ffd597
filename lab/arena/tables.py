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


def path_of(discipline: str) -> Path:
    """Return the path of a comparison's raw data, which may not exist."""
    return folder() / discipline


def speeds() -> str:
    """Return the speed table of all methods."""
    return speed_tables(raw.read(path_of(OWN_SIZE)))


def speed_tables(data: raw.Raw) -> str:
    """Return a table with one row per method, the fastest first, and a sentence on the lead at each temperature."""
    standings = [standing for standing in speed_standings(data.runs) if standing.category == OVERALL]
    temperatures = list(dict.fromkeys(standing.temperature for standing in standings))
    cells = {(standing.method, standing.temperature): standing for standing in standings}
    names = sorted(
        dict.fromkeys(standing.method for standing in standings), key=lambda name: -cells[name, temperatures[0]].speed
    )
    words = ("tokens/s", "against plain", "against `jakiro`", "τ", "draft + check, ms")
    columns = [f"T = {temperature:g}: {word}" for temperature in temperatures for word in words]
    rows = [
        [f"`{name}`", *(cell for temperature in temperatures for cell in _speed_cells(cells[name, temperature]))]
        for name in names
    ]
    leads = [
        lead_sentence(
            lead([run for run in data.runs if run.temperature == temperature]),
            lambda lane: f"`{lane.method}`",
            f"at temperature {temperature:g}",
        )
        for temperature in temperatures
    ]
    return "\n\n".join([where(data), markdown(["", *columns], rows), "\n".join(leads)])


def taus() -> str:
    """Return a table of τ and accepted levels of every method and size, the highest τ first."""
    data = counts.read(path_of(SAME_NODES))
    standings = nodes_standings(data.answers)
    columns = list(dict.fromkeys((standing.temperature, standing.nodes) for standing in standings))
    cells = {(standing.method, standing.temperature, standing.nodes): standing for standing in standings}
    methods = sorted(
        dict.fromkeys(standing.method for standing in standings), key=lambda name: -cells[name, *columns[0]].tau
    )
    rows = [[f"`{name}`", *(_tau_cell(cells[name, *column]) for column in columns)] for name in methods]
    stamp, settings = data.environment, data.settings
    prompts = len({answer.question_id for answer in data.answers})
    return (
        f"{prompts} prompts, at most {settings['max_new_tokens']} new tokens, head `{stamp['head']}`, {stamp['dtype']} "
        f"passes, run of {stamp['date'][:10]}. Brackets: 95 % bootstrap interval over prompts; then the share of "
        f"tested levels that was accepted.\n\n"
        f"{markdown(['', *(f'τ, T = {temperature:g}, {nodes} nodes' for temperature, nodes in columns)], rows)}"
    )


BLOCKS: dict[str, tuple[str, Callable[[], str]]] = {
    "own-size": (OWN_SIZE, speeds),
    "same-nodes": (SAME_NODES, taus),
}


def block(name: str) -> str:
    """Return a table as it appears in the page, or a sentence if it was not measured."""
    discipline, make = BLOCKS[name]
    return make() if path_of(discipline).is_file() else UNMEASURED


def leaderboard() -> str:
    """Return the page's leaderboard as JSON."""
    return json.dumps(boards(folder()), ensure_ascii=False, separators=(",", ":")) + "\n"


def take(discipline: str, bench: Path) -> None:
    """Convert the result folder of a `bench` into raw data."""
    values = json.loads((bench / "bench.json").read_text(encoding="utf-8"))
    compact = raw.compact if discipline == OWN_SIZE else counts.compact
    write_atomically(path_of(discipline), compact(values))


def _speed_cells(standing: SpeedStanding) -> list[str]:
    group = standing.group
    plain, default = standing.method == PLAIN.name, standing.method == DEFAULT.name
    return [
        f"{standing.speed:.1f}",
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
    for discipline, bench in ((OWN_SIZE, chosen.own_size), (SAME_NODES, chosen.same_nodes)):
        if bench is not None:
            take(discipline, bench)
    put({name: block(name) for name in BLOCKS}, chosen.write)
    if chosen.write:
        write_atomically(path_of(LEADERBOARD), leaderboard())


if __name__ == "__main__":
    main()
