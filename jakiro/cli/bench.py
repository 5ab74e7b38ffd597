"""The command `bench`: its options, checked before anything is loaded, and what they ask for."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from jakiro.cli import loading, options
from jakiro.cli.fields import filled, options_from
from jakiro.config import LIMIT, MAX_NEW_TOKENS, TOP_K, TOP_P, TreeConfig
from jakiro.system import comma_list
from jakiro.zoo.options import LoadOptions


@options_from(LoadOptions)
def bench(
    prompts: options.Prompts = None,
    limit: Annotated[int | None, typer.Option(help=LIMIT)] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma list, see `methods`, or all; default: plain decoding, the head's method, hf-generate."
        ),
    ] = None,
    temperatures: Annotated[str, typer.Option(help="Comma list of temperatures; 0 is greedy.")] = "0,1",
    seeds: Annotated[str, typer.Option(help="Comma list; 0-9 is a range.")] = "0",
    nodes: Annotated[
        str, typer.Option(help="Comma list of tree sizes in nodes, one lane each; auto sizes trees by measured costs.")
    ] = "auto,24",
    depth: options.Depth = None,
    width: options.Width = None,
    max_new_tokens: Annotated[int, typer.Option(help=MAX_NEW_TOKENS)] = 128,
    top_p: Annotated[float, typer.Option(help=TOP_P)] = 1.0,
    top_k: Annotated[int, typer.Option(help=TOP_K)] = 0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: tokens of prompt and answer become rarer.")] = 1.0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; if not given, one in runs/bench, or runs/identical.")
    ] = None,
    check_identical: Annotated[
        bool, typer.Option("--check-identical", help="Only compare token ids; continues where it stopped.")
    ] = False,
    target_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="With --check-identical: try more seeds until this many tokens are compared."),
    ] = None,
    methods_from: options.MethodsFrom = None,
    **given,
) -> None:
    """Measure speed, tau and acceptance on this machine, or check that texts are identical."""
    from jakiro.bench.command import compare, measure
    from jakiro.bench.runner import BenchSettings, head_names, loadable
    from jakiro.methods import METHODS
    from jakiro.methods import methods_from as read_methods
    from jakiro.prompts import load_questions
    from jakiro.zoo.table import unequal_training

    further = read_methods(methods_from or ())
    settings = BenchSettings(
        **({} if methods is None else {"methods": tuple(comma_list("--methods", methods, str))}),
        temperatures=tuple(comma_list("--temperatures", temperatures, float)),
        seeds=tuple(comma_list("--seeds", seeds, int)),
        nodes=tuple(comma_list("--nodes", nodes, int, words=("auto",))),
        max_new_tokens=max_new_tokens,
        top_p=top_p,
        top_k=top_k,
        repetition_penalty=repetition_penalty,
        tree=loading.tree(None, depth, width) or TreeConfig(),
        known=METHODS.with_further(further),
    )
    questions = load_questions(prompts, limit)
    generator = loading.load(filled(LoadOptions, given, methods=further))
    loading.say_notices(generator)
    settings, left_out = loadable(generator, settings)
    unequal = unequal_training(head_names(generator, settings))
    for sentence in (*left_out, *([unequal] if unequal else [])):
        loading.notes.print(sentence, style="yellow", markup=False, highlight=False, soft_wrap=True)
    console = loading.table_console()
    if check_identical:
        log = (out or Path("runs") / "identical") / "comparisons.jsonl"
        if not compare(generator, settings, questions, log, console, target_tokens):
            raise typer.Exit(1)
    else:
        folder = out or Path("runs") / "bench" / f"{datetime.now():%Y%m%d-%H%M%S}"
        measure(generator, settings, questions, folder, console)
