"""What `python -m jakiro bench` does once its options are read: measure, and write it down."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from jakiro.bench.environment import environment
from jakiro.bench.render import DEFINITIONS, as_json, tables
from jakiro.bench.report import summarise
from jakiro.bench.runner import PLAIN_FAST, Bench, BenchSettings
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
    """Runs the benchmark, prints its tables and writes bench.json, after an interruption too.

    Args:
        further_stamp: what else is to be written down about this run.
    """
    # Plain decoding on the same weights with fast numerics, where it takes part
    fast = generator.with_numerics("fast") if PLAIN_FAST in settings.methods else None
    peers = {name: make(generator.status) for name, make in settings.peers.items() if name in settings.methods}
    bench = Bench(generator, settings, fast, peers)
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
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
    if not runs:
        return
    groups = summarise(runs)
    for table in tables(groups):
        console.print(table)
    console.print(DEFINITIONS, style="dim")
    stamp = environment(generator.status) | dict(further_stamp or {})
    write_atomically(folder / "bench.json", as_json(stamp, settings, groups, runs))
    console.print(f"Written: {folder / 'bench.json'}.", markup=False)
