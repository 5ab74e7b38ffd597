"""What `python -m jakiro bench` does once its options are read: measure or compare, and write it down."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from jakiro.bench.environment import environment
from jakiro.bench.identical import Comparison, check_identical, read_log, setup_of
from jakiro.bench.render import DEFINITIONS, as_json, tables
from jakiro.bench.report import summarise
from jakiro.bench.runner import LLAMA_METHODS, PLAIN_FAST, STOCK, Bench, BenchSettings
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
    bench = Bench(generator, settings, fast, _peers(generator, settings))
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


def compare(
    generator,
    settings: BenchSettings,
    questions: Sequence[Question],
    log: Path,
    console: Console,
    target_tokens: int | None = None,
) -> bool:
    """Compares token ids and says where they differ; returns whether all comparisons in the log agree.

    Args:
        target_tokens: goes on with further seeds until the log holds so many compared tokens.
    """
    setup = setup_of(generator.status, settings)
    before = [comparison for comparison in read_log(log) if comparison.setup == setup]
    if before:
        console.print(f"{log} holds {len(before)} comparisons already; they are not repeated.", markup=False)
    combinations = len(questions) * len(settings.temperatures) * len(settings.seeds) * len(settings.nodes)
    num_tokens = sum(comparison.num_tokens for comparison in before)
    total, completed = (target_tokens, num_tokens) if target_tokens else (combinations, len(before))
    start, new_tokens = time.perf_counter(), 0
    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("comparing", total=total, completed=min(completed, total))
            for comparison in check_identical(generator, questions, settings, log, target_tokens):
                new_tokens += comparison.num_tokens
                progress.update(task, advance=comparison.num_tokens if target_tokens else 1)
                if comparison.position is not None:
                    console.print(_divergence(comparison), markup=False)
    except KeyboardInterrupt:
        console.print("Stopped; the same command goes on from here.")
    seconds = time.perf_counter() - start
    done = [comparison for comparison in read_log(log) if comparison.setup == setup]
    different = [comparison for comparison in done if comparison.position is not None]
    steps = sum(comparison.num_steps for comparison in done)
    tau = sum(comparison.num_accepted for comparison in done) / steps + 1 if steps else 1.0
    rounding = "bit-identical" if generator.status.get("bit_identical") else "rounding may differ"
    console.print(
        f"{len(different)} of {len(done)} texts differ; {sum(comparison.num_tokens for comparison in done):,} tokens "
        f"compared, tau {tau:.2f}, {rounding} by the load probe."
    )
    if new_tokens:
        console.print(f"{new_tokens:,} of them now, in {seconds:.0f} s: {new_tokens / seconds:.1f} tokens/s both ways.")
    return not different


def _divergence(comparison: Comparison) -> str:
    margin = "unknown" if comparison.margin is None else f"{comparison.margin:.2e}"
    return (
        f"differs: prompt {comparison.question_id} ({comparison.category}), temperature {comparison.temperature:g}, "
        f"seed {comparison.seed}, nodes {comparison.nodes}: token {comparison.position}, margin {margin}"
    )


def _peers(generator, settings: BenchSettings) -> dict[str, Callable]:
    """A runner for each program that takes part beside ours."""
    target, peers = generator.status["target"], {}
    if STOCK in settings.methods:
        from jakiro.bench.peers.stock import StockRunner

        peers[STOCK] = StockRunner(target, generator.status["device"], generator.status["dtype"])
    for name in settings.methods:
        if name in LLAMA_METHODS:
            import torch

            from jakiro.bench.peers.llama import LlamaCppRunner

            peers[name] = LlamaCppRunner(name, target, torch.get_num_threads())
    return peers
