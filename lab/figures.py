"""Generated tables of README, docs/performance.md and docs/training.md, computed from the shipped raw data.

`python -m lab.figures` prints them. `--take runs/figures` first converts the results of `make figures` into raw data.
`--write README.md docs/performance.md docs/training.md` writes each table between its marks. A test compares the
pages with the raw data, so tables are never edited by hand.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jakiro.bench.report import OVERALL, Group, bootstrap_interval, summarise
from jakiro.bench.runner import Lane
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.system import assets_folder, write_atomically
from lab import raw
from lab.leads import Lead

NAMES = {
    PLAIN.name: "plain decoding, exact numerics",
    f"{PLAIN.name}-fast": "plain decoding, fast numerics",
    DEFAULT.name: "Jakiro, automatic trees",
    "jakiro+prompt_lookup": "Jakiro with copies from the text",
    "hf-generate": "`transformers.generate`",
    "llama-cpp": "llama.cpp, the same file",
    "llama-cpp-lookup": "llama.cpp with its own n-gram speculation",
}
START, END = "<!-- figures: {name} -->\n", "\n<!-- end of figures -->"
TAUS, SPEED, STEP = "tau", "speed", "step"


def folder() -> Path:
    """Return the folder of the raw data."""
    return assets_folder() / "benchmark"


def speed_table(data: raw.Raw) -> str:
    """Return a table of tokens per second and speedup of each lane and temperature.

    If prompt times were measured, a sentence below it gives the speedups that include them.
    """
    groups = [group for group in summarise(data.runs) if group.category == OVERALL]
    columns, rows = [], {group.lane: [_name_of(group)] for group in groups}
    for temperature in dict.fromkeys(group.temperature for group in groups):
        by_lane = {group.lane: group for group in groups if group.temperature == temperature}
        columns += [f"{title}, T = {temperature:g}" for title in ("tokens/s", "speedup")]
        for lane, row in rows.items():
            row += _speed_cells(by_lane[lane]) if lane in by_lane else ("–", "–")
    ours = [group for group in _of_default(groups) if group.end_to_end]
    read = ", ".join(f"{group.end_to_end:.2f}× at temperature {group.temperature:g}" for group in ours)
    below = f"\n\nIncluding the time to read the prompts, Jakiro's speedup is {read}." if read else ""
    return f"{where(data)}\n\n{markdown(['', *columns], list(rows.values()))}{below}"


def pair_table(data: raw.Raw, recommended: raw.Raw) -> str:
    """Return the speed table of a pair of models and a paragraph on categories, τ and llama.cpp.

    Args:
        recommended: a second run, with the recommended sampling settings of the target.
    """
    data = replace(data, runs=data.runs + recommended.runs)
    groups = summarise(data.runs)
    ours = _of_default(groups)
    taus = ", ".join(f"{group.tau:.2f} at temperature {group.temperature:g}" for group in ours)
    first = ours[0].temperature
    categories = sorted(
        (group for group in groups if group.lane == ours[0].lane and group.temperature == first and group not in ours),
        key=lambda group: group.speedup,
    )
    slowest, fastest = categories[0], categories[-1]
    speeds = {
        raw.lane_named(group.lane).method: round(group.speed, 1)
        for group in groups
        if group.category == OVERALL and group.temperature == first
    }
    settings = [
        f"{label} {recommended.settings[name]:g}"
        for name, label in _FILTERS.items()
        if recommended.settings.get(name, 1) != 1
    ]
    drafted, plain = (f"{speeds[name] / speeds['llama-cpp']:.2f}×" for name in (DEFAULT.name, PLAIN.name))
    return (
        f"{speed_table(data)} Temperature {recommended.runs[0].temperature:g} uses {', '.join(settings)}. By category, "
        f"the speedup at temperature {first:g} ranges from {slowest.speedup:.2f}× ({slowest.category}) to "
        f"{fastest.speedup:.2f}× ({fastest.category}). τ is {taus}. Compared with plain decoding in llama.cpp at "
        f"temperature {first:g}, Jakiro is {drafted} and plain decoding here {plain} as fast."
    )


def speedup_sentence(data: raw.Raw, recommended: raw.Raw) -> str:
    """Return one sentence with the default method's speedup at each temperature; arguments as in `pair_table`."""
    groups = _of_default(summarise(data.runs + recommended.runs))
    speedups = ", ".join(f"{_speed_cells(group)[1]} at temperature {group.temperature:g}" for group in groups)
    return f"Jakiro's speedup with {data.environment['target']} is {speedups}."


def _of_default(groups: Sequence[Group]) -> list[Group]:
    """Return the groups of the default method over all categories, one per temperature."""
    return [g for g in groups if g.category == OVERALL and raw.lane_named(g.lane).method == DEFAULT.name]


def lead_sentence(result: Lead, name_of: Callable[[Lane], str], where: str) -> str:
    """Return one sentence on the fastest lane; no lane is called the fastest if noise explains its lead."""
    name, against = name_of(result.first), name_of(result.against)
    ratio = f"{result.ratio:.2f}×{brackets(result.interval)}"
    if not result.level:
        return f"Fastest {where}: {name}, {ratio} as fast as {against}."
    if len(result.level) == 1:
        return f"No clear winner {where}: {name} is {ratio} as fast as {against}, within noise."
    names = f"{', '.join(map(name_of, result.level[:-1]))} and {name_of(result.level[-1])}"
    return f"No clear winner {where}: the lead of {name} over {names} is within noise ({ratio} as fast as {against})."


def step_table(*runs: raw.Raw) -> str:
    """Return a table with the milliseconds of a step's parts and the predicted and measured speedup.

    Args:
        runs: raw data of one target each. Lanes of other programs have no steps and are left out.
    """
    columns = ["target", "", "T", "draft", "check", "other", "a step", "τ", "speedup predicted", "measured"]
    rows = []
    groups = [(data.environment["target"], group) for data in runs for group in summarise(data.runs)]
    for target, group in groups:
        if group.category == OVERALL and group.draft_ms is not None:
            parts = (group.draft_ms, group.verify_ms, group.other_ms)
            times = [f"{milliseconds:.1f}" for milliseconds in (*parts, sum(parts))]
            predicted = f"{group.predicted:.2f}×" if group.predicted and group.tau > 1 else "–"
            speeds = [f"{group.tau:.2f}", predicted, f"{group.speedup:.2f}×"]
            rows.append([target, _name_of(group), f"{group.temperature:g}", *times, *speeds])
    note = "Milliseconds are means over steps. Predicted: τ · plain step ÷ step."
    return f"{markdown(columns, rows)}\n\n{note}"


def tau_table(values: dict) -> str:
    """Return a table of τ by number of nodes and temperature."""
    scores, settings = values["scores"], values["settings"]
    temperatures = list(dict.fromkeys(score["temperature"] for score in scores))
    taus = {(score["nodes"], score["temperature"]): score["tau"] for score in scores}
    rows = [
        [str(nodes), *(f"{taus[nodes, temperature]:.2f}" for temperature in temperatures)]
        for nodes in dict.fromkeys(score["nodes"] for score in scores)
    ]
    columns = [f"τ, T = {temperature:g}" for temperature in temperatures]
    prompts = f"{settings['prompts']} prompts, at most {settings['max_new_tokens']} new tokens"
    return (
        f"{markdown(['nodes', *columns], rows)}\n\nHead `{values['head']['name']}`, {prompts},\n"
        f"width {settings['width']}, depth {settings['depth']}, trees grown along answers of the target."
    )


_FILTERS = {"top_p": "top-p", "top_k": "top-k", "repetition_penalty": "repetition penalty"}
# Function and raw data files of each table
BLOCKS: dict[str, tuple[Callable[[raw.Raw], str], tuple[str, ...]]] = {
    SPEED: (pair_table, (SPEED, "speed-makers")),
    "coder": (pair_table, ("coder", "coder-makers")),
    "coder-speedup": (speedup_sentence, ("coder", "coder-makers")),
    "adversarial": (speed_table, ("adversarial",)),
    STEP: (step_table, (SPEED, "coder")),
}


def block(name: str) -> str:
    """Return a generated table as it appears in its page."""
    if name == TAUS:
        return tau_table(json.loads((folder() / f"{TAUS}.json").read_text(encoding="utf-8")))
    table, files = BLOCKS[name]
    return table(*(raw.read(folder() / f"{file}.json") for file in files))


def between(text: str, name: str) -> tuple[int, int]:
    """Return the start and end of a table's text between its marks.

    Raises:
        ValueError: the marks are missing.
    """
    mark = START.format(name=name)
    start = text.find(mark)
    end = text.find(END, start)
    if start < 0 or end < 0:
        raise ValueError(f"The marks of “{name}” are missing; add {mark.strip()} … {END.strip()} to the page.")
    return start + len(mark), end


def take(measured: Path) -> list[str]:
    """Convert the measurements in a folder into raw data; return the names of the tables."""
    names = []
    for name in dict.fromkeys([*(file for _, files in BLOCKS.values() for file in files), TAUS]):
        path = measured / f"{TAUS}.json" if name == TAUS else measured / name / "bench.json"
        if path.is_file():
            values = json.loads(path.read_text(encoding="utf-8"))
            compacted = compact_taus(values) if name == TAUS else raw.compact(values)
            write_atomically(folder() / f"{name}.json", compacted)
            names.append(name)
    return names


def compact_taus(numbers: dict) -> str:
    """Return the overall scores of the default method from the output of `evaluate --out`."""
    columns = ("temperature", "nodes", "tau", "num_steps", "num_prompts")
    overall = [
        {name: score[name] for name in columns}
        for score in numbers["scores"]
        if (score["category"], score["method"]) == ("all", DEFAULT.name)
    ]
    return raw.lines({"head": numbers["head"], "settings": numbers["settings"]}, "scores", overall)


def write(pages: Sequence[Path], blocks: Mapping[str, str]) -> None:
    """Write each table between its marks in one of the pages.

    Raises:
        ValueError: no page has the marks of a table; then no page is changed.
    """
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    for name, table in blocks.items():
        page = next((page for page, text in texts.items() if START.format(name=name) in text), pages[0])
        start, end = between(texts[page], name)
        texts[page] = texts[page][:start] + table + texts[page][end:]
    for page, text in texts.items():
        write_atomically(page, text)


def show(blocks: Mapping[str, str]) -> None:
    """Print every table with its marks."""
    for name, table in blocks.items():
        print(f"{START.format(name=name)}{table}{END}\n")  # noqa: T201 - the output of the command


def brackets(interval: tuple[float, float] | None) -> str:
    """Return an interval in brackets, or an empty text."""
    return f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""


def pooled_speedup(rows: Sequence[tuple[float, int, float, int]]) -> str:
    """Return a speedup with its interval from rows of base seconds, base tokens, seconds and tokens."""
    base_seconds, base_tokens, seconds, tokens = (sum(column) for column in zip(*rows, strict=True))
    return f"{base_seconds / base_tokens / (seconds / tokens):.2f}{brackets(bootstrap_interval(rows))}"


def _name_of(group: Group) -> str:
    return NAMES.get(raw.lane_named(group.lane).method, group.lane)


def _speed_cells(group: Group) -> tuple[str, str]:
    return f"{group.speed:.1f}", f"{group.speedup:.2f}×{brackets(group.speedup_interval)}"


def where(data: raw.Raw) -> str:
    """Return the lines above a table with intervals."""
    return f"{measured_on(data)} Brackets: 95 % bootstrap interval over prompts."


def measured_on(data: raw.Raw) -> str:
    """Return machine, numerics, prompts and date of a benchmark."""
    stamp = data.environment
    device = stamp["gpu"] if str(stamp["device"]).startswith("cuda") else f"{stamp['cpu']}, {stamp['threads']} threads"
    compiled = "compiled code" if stamp["compiled"] else "torch's kernels"
    weights = f"{stamp['dtype']} passes over {stamp['weight_bits']}-bit weights"
    num_prompts = len({run.question_id for run in data.runs})
    return (
        f"{device}, torch {stamp['torch']}, {weights}, {compiled}.\n"
        f"{num_prompts} prompts, at most {data.settings['max_new_tokens']} new tokens, one interleaved run of "
        f"{stamp['date'][:10]}."
    )


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def table_options(description: str) -> argparse.ArgumentParser:
    """Return the argument parser of a command that prints tables or, with --write, writes them into pages."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--write", type=Path, nargs="+", metavar="PAGE", help="write the tables into these pages")
    return parser


def put(blocks: Mapping[str, str], pages: Sequence[Path] | None) -> None:
    """Write the tables into the pages, or print them if no page is given."""
    show(blocks) if pages is None else write(pages, blocks)


def main() -> None:
    parser = table_options("Print or write the tables of README and docs, computed from the shipped raw data.")
    parser.add_argument("--take", type=Path, metavar="FOLDER", help="first convert these measurements into raw data")
    chosen = parser.parse_args()
    if chosen.take is not None:
        take(chosen.take)
    put({name: block(name) for name in (*BLOCKS, TAUS)}, chosen.write)


if __name__ == "__main__":
    main()
