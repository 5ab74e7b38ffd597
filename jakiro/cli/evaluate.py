"""The command `evaluate`: fills an `EvaluateConfig` from its options and shows what was found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from jakiro.cli.loading import set_up, table_console
from jakiro.cli.options import MethodsFrom, OneDevice, OneDtype, Prompts, Target, Threads, option
from jakiro.system import comma_list, write_atomically
from jakiro.training import evaluate as library
from jakiro.training.evaluate import ALL, EvaluateConfig, Score

DEFINITION = "τ = accepted draft tokens per step + 1 (the target's own token), pooled over steps, before any cut."
_DEFAULTS = EvaluateConfig()


def _listed(values: Sequence[float]) -> str:
    """What `comma_list` reads these values from."""
    return ",".join(f"{value:g}" for value in values)


def evaluate(
    head: Annotated[str | None, option("Draft head: a known name, a folder, or a Hub id.")] = None,
    target: Target = None,
    methods: Annotated[
        str | None,
        option("Comma list, see `jakiro methods`, or all that can be replayed; if not given, the head's own."),
    ] = None,
    prompts: Prompts = None,
    limit: Annotated[int | None, option("At most this many prompts, from all categories in turn.")] = None,
    max_new_tokens: Annotated[int, option("Longest answer.")] = _DEFAULTS.max_new_tokens,
    temperatures: Annotated[str, option("Comma list.")] = _listed(_DEFAULTS.temperatures),
    nodes: Annotated[str, option("Comma list of node budgets, root included.")] = _listed(_DEFAULTS.nodes),
    width: Annotated[int, option("Children tried per node and nodes expanded per level.")] = _DEFAULTS.width,
    depth: Annotated[int, option("Depth of a tree's deepest node.")] = _DEFAULTS.depth,
    contrastive: Annotated[bool, option("With --no-contrastive the last level costs one more pass instead.")] = True,
    seed: Annotated[int, option("The same seed gives the same answers and noise.")] = _DEFAULTS.seed,
    answers: Annotated[
        Path | None, option("Folder of written answers, for any head; else in the user's cache.")
    ] = None,
    batch_size: Annotated[int, option("Answers written at once.")] = _DEFAULTS.batch_size,
    out: Annotated[Path | None, option("Write the numbers to this JSON file.")] = None,
    device: OneDevice = None,
    dtype: OneDtype = None,
    draft_precision: Annotated[str, option("On a CPU: int8, as heads run there, or full.")] = _DEFAULTS.draft_precision,
    threads: Threads = None,
    methods_from: MethodsFrom = None,
) -> None:
    """Measure tau on prompts: the target writes each answer once, every head, method and tree replays it."""
    set_up(threads)
    if out is not None and not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {out.absolute().parent} for the numbers.")
    found = library.evaluate(
        EvaluateConfig(
            head=head, target=target, methods=None if methods is None else tuple(comma_list("--methods", methods, str)),
            methods_from=tuple(methods_from or ()), prompts=prompts and str(prompts), limit=limit,
            max_new_tokens=max_new_tokens, temperatures=tuple(comma_list("--temperatures", temperatures, float)),
            nodes=tuple(comma_list("--nodes", nodes, int)), width=width, depth=depth, contrastive=contrastive,
            seed=seed, answers=answers and str(answers), batch_size=batch_size, device=device, dtype=dtype,
            draft_precision=draft_precision,
        )
    )  # fmt: skip
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
