"""The leaderboard's tables in docs/arena.md, computed from the raw data that ships.

`python -m lab.arena.tables` prints them. `--own-size FOLDER` and `--same-nodes FOLDER` first make the raw data of what
`bench` measured there, `--write docs/arena.md` puts the tables into their places. A test compares them.
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
    """The raw data of a discipline, whether it was measured or not."""
    return folder() / discipline


def speeds() -> str:
    """Of all methods."""
    return speed_tables(raw.read(path_of(OWN_SIZE)))


def speed_tables(data: raw.Raw) -> str:
    """One row a method with all temperatures, the fastest at the first one first, and who is fastest."""
    standings = [each for each in speed_standings(data.runs) if each.category == OVERALL]
    temperatures = list(dict.fromkeys(each.temperature for each in standings))
    found = {(each.method, each.temperature): each for each in standings}
    names = sorted(
        dict.fromkeys(each.method for each in standings), key=lambda name: -found[name, temperatures[0]].speed
    )
    words = ("tokens/s", "against plain", "against `jakiro`", "τ", "draft + check, ms")
    columns = [f"T = {temperature:g}: {word}" for temperature in temperatures for word in words]
    rows = [
        [f"`{name}`", *(cell for temperature in temperatures for cell in _speed_cells(found[name, temperature]))]
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
    """τ and kept levels of every method at every size, the highest τ first."""
    data = counts.read(path_of(SAME_NODES))
    standings = [each for each in nodes_standings(data.answers) if each.category == OVERALL]
    columns = list(dict.fromkeys((each.temperature, each.nodes) for each in standings))
    found = {(each.method, each.temperature, each.nodes): each for each in standings}
    methods = sorted(dict.fromkeys(each.method for each in standings), key=lambda name: -found[name, *columns[0]].tau)
    rows = [[f"`{name}`", *(_tau_cell(found[name, *column]) for column in columns)] for name in methods]
    stamp, settings = data.environment, data.settings
    prompts = len({answer.question_id for answer in data.answers})
    return (
        f"{prompts} prompts, at most {settings['max_new_tokens']} new tokens, head `{stamp['head']}`, {stamp['dtype']} "
        f"passes, run of {stamp['date'][:10]}. Brackets: 95 % bootstrap interval over prompts; then the share of tested "
        f"levels that was accepted.\n\n"
        f"{markdown(['', *(f'τ, T = {temperature:g}, {nodes} nodes' for temperature, nodes in columns)], rows)}"
    )


BLOCKS: dict[str, tuple[str, Callable[[], str]]] = {
    "own-size": (OWN_SIZE, speeds),
    "same-nodes": (SAME_NODES, taus),
}


def block(name: str) -> str:
    """A table as it stands in the page, or that there is none yet."""
    discipline, make = BLOCKS[name]
    return make() if path_of(discipline).is_file() else UNMEASURED


def leaderboard() -> str:
    """What the page shows, as JSON."""
    return json.dumps(boards(folder()), ensure_ascii=False, separators=(",", ":")) + "\n"


def take(discipline: str, bench: Path) -> None:
    """Makes a discipline's raw data from the folder of a `bench`."""
    values = json.loads((bench / "bench.json").read_text(encoding="utf-8"))
    compact = raw.compact if discipline == OWN_SIZE else counts.compact
    write_atomically(path_of(discipline), compact(values))


def _speed_cells(each: SpeedStanding) -> list[str]:
    group = each.group
    plain, default = each.method == PLAIN.name, each.method == DEFAULT.name
    return [
        f"{each.speed:.1f}",
        "1×" if plain else _times(group.speedup) + brackets(group.speedup_interval),
        "1×" if default else _times(each.against_default) + brackets(each.against_default_interval),
        f"{group.tau:.2f}",
        f"{group.draft_ms:.1f} + {group.verify_ms:.1f}",
    ]


def _tau_cell(each: NodesStanding) -> str:
    kept = "–" if each.acceptance is None else f"{100 * each.acceptance:.0f} %"
    return f"{each.tau:.2f}{brackets(each.tau_interval)} · {kept}"


def _times(value: float) -> str:
    return f"{value:.2f}×"


def main() -> None:
    parser = table_options("The leaderboard's tables from the raw data that ships.")
    parser.add_argument("--own-size", type=Path, metavar="FOLDER", help="take a bench's runs")
    parser.add_argument("--same-nodes", type=Path, metavar="FOLDER", help="take a bench's counts")
    chosen = parser.parse_args()
    for discipline, bench in ((OWN_SIZE, chosen.own_size), (SAME_NODES, chosen.same_nodes)):
        if bench is not None:
            take(discipline, bench)
    put({name: block(name) for name in BLOCKS}, chosen.write)
    if chosen.write:
        write_atomically(path_of(LEADERBOARD), leaderboard())


if __name__ == "__main__":
    main()
