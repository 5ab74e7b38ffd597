"""The training commands; each builds a config of the library. Importing this module imports torch."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from accelerate import PartialState
from rich.table import Table

from jakiro.cli.fields import build_config, options_from
from jakiro.cli.loading import check_file, say, set_up, table_console
from jakiro.cli.options import Threads, option
from jakiro.system import write_atomically
from jakiro.training import calibrate as calibration
from jakiro.training import evaluate as evaluation
from jakiro.training import train as training
from jakiro.training.calibrate import CalibrateConfig
from jakiro.training.corpus import CorpusConfig, CorpusOptions, write_corpus
from jakiro.training.evaluate import ALL, EvaluateConfig, Score
from jakiro.training.losses import LossWeights
from jakiro.training.schedule import TrainingOptions
from jakiro.training.train import TrainConfig
from jakiro.training.trainer import TrainingStopped

DEFINITION = "τ = accepted draft tokens per step + 1 (the target's own token), pooled over steps, before any cut."
log = logging.getLogger("jakiro")


@options_from(CorpusConfig, CorpusOptions)
def corpus(threads: Threads = None, **values) -> None:
    """Write the text on which a head is trained."""
    set_up(threads)
    config = build_config(CorpusConfig, values, options=build_config(CorpusOptions, values))
    log.info("Wrote %d tokens to %s.", write_corpus(config), config.out)


@options_from(TrainConfig, TrainingOptions, LossWeights)
def train(threads: Threads = None, **values) -> None:
    """Train a draft head for a target: features, training, calibration, report."""
    set_up(threads)
    options = build_config(TrainingOptions, values, weights=build_config(LossWeights, values))
    config = build_config(TrainConfig, values, options=options)
    try:
        training.train(config)
    except (TrainingStopped, KeyboardInterrupt) as stopped:
        before = "Stopped; run the same command again: finished features and the last checkpoint (--resume) are kept."
        if PartialState().is_main_process:
            say(str(stopped) or before, "yellow")
        raise typer.Exit(130) from None


@options_from(CalibrateConfig)
def calibrate(threads: Threads = None, **values) -> None:
    """Calibrate a head again at temperatures 0, 0.7 and 1, on text it was not trained on."""
    set_up(threads)
    for level, share in calibration.calibrate(build_config(CalibrateConfig, values)).items():
        log.info("%s %.3f", level, share)


@options_from(EvaluateConfig)
def evaluate(
    out: Annotated[Path | None, option("Write the results to this JSON file.")] = None,
    threads: Threads = None,
    **values,
) -> None:
    """Measure tau on prompts: the target answers each prompt once; every head, method and tree replays the answer."""
    set_up(threads)
    if out is not None:
        check_file(out, "the results")
    result = evaluation.evaluate(build_config(EvaluateConfig, values))
    _print_tables(result.scores)
    if out is not None:
        write_atomically(out, result.to_json())


def _print_tables(scores: Sequence[Score]) -> None:
    console = table_console()
    overall = [score for score in scores if score.category == ALL]
    table = Table("method", "temperature", "nodes", "τ", "steps", "acceptance by depth", "accepted tokens by proposer")
    for score in overall:
        by_depth = " ".join(f"{accepted / tested:.2f}" for accepted, tested in score.acceptance_by_depth if tested)
        shares = ", ".join(f"{name} {share:.0%}" for name, share in score.accepted_share.items())
        numbers = f"{score.temperature:g}", str(score.nodes), _format(score.tau), str(score.num_steps)
        table.add_row(score.method, *numbers, by_depth, shares)
    console.print(table)
    columns = list(dict.fromkeys((score.temperature, score.nodes) for score in overall))
    names = [f"T {temperature:g}, {nodes} nodes" for temperature, nodes in columns]
    table = Table("category", "prompts", "method", *names)
    by_key = {(score.category, score.method, score.temperature, score.nodes): score for score in scores}
    for category, method in dict.fromkeys((score.category, score.method) for score in scores):
        row = [by_key[category, method, *column] for column in columns]
        table.add_row(category, str(row[0].num_prompts), method, *(_format(score.tau) for score in row))
    console.print(table)
    console.print(DEFINITION, style="dim")


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
