"""The benchmark behind `python -m jakiro bench`: measure, print the tables, write the file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from jakiro.bench.environment import environment
from jakiro.bench.noise import ProcessorClock, other_load, warnings
from jakiro.bench.render import DEFINITIONS, as_json, tables
from jakiro.bench.report import summarise
from jakiro.bench.runner import PLAIN_FAST, Bench, BenchSettings, Run
from jakiro.prompts import Question
from jakiro.system import write_atomically


def measure(
    generator,
    settings: BenchSettings,
    questions: Sequence[Question],
    folder: Path,
    console: Console,
    further_stamp: Mapping[str, object] | None = None,
) -> None:
    """Run the benchmark, print its tables and write bench.json; an interrupted benchmark is written too.

    Args:
        generator: a `JakiroGenerator`.
        settings: lanes and prompts to measure.
        questions: the prompts.
        folder: created if missing; receives bench.json.
        console: receives progress, warnings and tables.
        further_stamp: values added to the environment in bench.json.
    """
    start = ProcessorClock.now()
    # The lane of plain decoding with fast numerics shares the weights
    fast = generator.with_numerics("fast") if PLAIN_FAST in settings.methods else None
    peers = {name: make(generator.status) for name, make in settings.peers.items() if name in settings.methods}
    runs = _run(Bench(generator, settings, fast, peers), questions, console)
    if not runs:
        return
    load = other_load(start, ProcessorClock.now())
    messages = warnings(runs, load)
    for message in messages:
        console.print(message, style="yellow", highlight=False, soft_wrap=True)
    groups = summarise(runs)
    for table in tables(groups):
        console.print(table)
    console.print(DEFINITIONS, style="dim")
    stamp = environment(generator.status) | {"other_load": round(load, 3), "warnings": messages}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "bench.json", as_json(stamp | dict(further_stamp or {}), settings, groups, runs))
    console.print(f"Written: {folder / 'bench.json'}.", markup=False)


def _run(bench: Bench, questions: Sequence[Question], console: Console) -> list[Run]:
    """Return the answers of all lanes, up to Ctrl-C."""
    settings, runs = bench.settings, []
    total = sum(len(question.turns) for question in questions) * len(settings.lanes)
    total *= len(settings.temperatures) * len(settings.seeds)
    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("warming up", total=total)
            bench.warm_up(questions[0])
            for run in bench.runs(questions):
                runs.append(run)
                progress.update(task, advance=1, description=f"{run.category} {run.question_id}, {run.lane.name}")
    except KeyboardInterrupt:
        console.print(f"Stopped after {len(runs)} of {total} runs; these are their numbers.")
    return runs
