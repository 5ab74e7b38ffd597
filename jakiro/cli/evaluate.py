"""The command `evaluate`: shows what was found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from jakiro.cli.fields import filled, options_from
from jakiro.cli.loading import set_up, table_console
from jakiro.cli.options import Threads, option
from jakiro.system import write_atomically
from jakiro.training import evaluate as library
from jakiro.training.evaluate import ALL, EvaluateConfig, Score

DEFINITION = "τ = accepted draft tokens per step + 1 (the target's own token), pooled over steps, before any cut."


@options_from(EvaluateConfig)
def evaluate(
    out: Annotated[Path | None, option("Write the numbers to this JSON file.")] = None,
    threads: Threads = None,
    **given,
) -> None:
    """Measure tau on prompts: the target writes each answer once, every head, method and tree replays it."""
    set_up(threads)
    if out is not None and not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {out.absolute().parent} for the numbers.")
    found = library.evaluate(filled(EvaluateConfig, given))
    _show(found.scores, found.experts)
    if out is not None:
        write_atomically(out, found.to_json())


def _show(found: Sequence[Score], experts: dict[str, float]) -> None:
    console = table_console()
    overall = [score for score in found if score.category == ALL]
    table = Table("method", "temperature", "nodes", "τ", "steps", "acceptance by depth", "accepted tokens by proposer")
    for score in overall:
        by_depth = " ".join(f"{kept / tested:.2f}" for kept, tested in score.acceptance_by_depth if tested)
        shares = ", ".join(f"{name} {share:.0%}" for name, share in score.accepted_share.items())
        table.add_row(
            *(score.method, f"{score.temperature:g}", str(score.nodes), _number(score.tau), str(score.num_steps)),
            *(by_depth, shares),
        )
    console.print(table)
    columns = list(dict.fromkeys((score.temperature, score.nodes) for score in overall))
    names = [f"T {temperature:g}, {nodes} nodes" for temperature, nodes in columns]
    table = Table("category", "prompts", "method", *names)
    by_key = {(score.category, score.method, score.temperature, score.nodes): score for score in found}
    for category, method in dict.fromkeys((score.category, score.method) for score in found):
        row = [by_key[category, method, *column] for column in columns]
        table.add_row(category, str(row[0].num_prompts), method, *(_number(score.tau) for score in row))
    console.print(table)
    if experts:
        _show_experts(console, experts)
    console.print(DEFINITION, style="dim")


def _show_experts(console: Console, experts: dict[str, float]) -> None:
    console.print(
        f"Experts: first guesses differ at {experts['differ']:.0%}; the better one is right at "
        f"{experts['best_expert_top1']:.1%}, one of them at {experts['union_top1']:.1%} "
        f"(gain {experts['gain']:.1%}); router entropy {experts['entropy']:.2f} bit, mean weight of the first "
        f"{experts['mean_weight_0']:.2f}."
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
