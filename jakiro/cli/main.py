"""The command line: reads options, calls the library, shows the result; it computes nothing itself. The text goes to
stdout, everything about it to stderr. Errors of the library are one red sentence and exit code 2.
"""

import logging
import os
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from jakiro.cli.options import (
    Depth,
    Device,
    DraftPrecision,
    Dtype,
    Graphs,
    Head,
    MaxNewTokens,
    Nodes,
    Numerics,
    Prompt,
    Raw,
    Seed,
    Target,
    Temperature,
    TopK,
    TopP,
    Width,
)
from jakiro.config import SamplingParams, TreeConfig
from jakiro.system import bound_waiting, comma_list
from jakiro.text import as_messages
from jakiro.trace import Trace

app = typer.Typer(
    help="Speculative decoding with a Jakiro draft head, every step recorded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
notes = Console(stderr=True)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and leaves the process with its exit code."""
    bound_waiting()
    _say_what_the_library_says()
    try:
        app(args=arguments, prog_name="jakiro")
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        notes.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


@app.command()
def generate(
    prompt: Prompt,
    method: Annotated[str | None, typer.Option(help="How to draft; `jakiro methods` lists the names.")] = None,
    raw: Raw = False,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    seed: Seed = 0,
    max_new_tokens: MaxNewTokens = 256,
    nodes: Nodes = None,
    depth: Depth = None,
    width: Width = None,
    target: Target = None,
    head: Head = None,
    device: Device = None,
    dtype: Dtype = None,
    numerics: Numerics = None,
    graphs: Graphs = True,
    draft_precision: DraftPrecision = None,
    trace: Annotated[Path | None, typer.Option(help="Write every step to this JSON file.")] = None,
) -> None:
    """Answer one prompt: the text to stdout as it comes, the numbers to stderr."""
    from jakiro.methods import DEFAULT, method_named
    from jakiro.zoo.loading import LoadOptions

    method = method_named(method or DEFAULT.name).name
    sampling = SamplingParams(temperature, top_p, top_k, seed, max_new_tokens)
    tree = _tree(nodes, depth, width)
    _check_prompt(prompt)
    if trace is not None and not trace.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {trace.absolute().parent} for the trace.")
    generator = _load(LoadOptions(target, head, device, dtype, numerics, draft_precision, graphs))
    stream = generator.stream(prompt, sampling, method=method, tree=tree, raw=raw)
    _say_notices(generator)
    interrupted = False
    try:
        for step in stream:
            _write(step.text)
    except KeyboardInterrupt:
        stream.close()
        interrupted = True
    if not stream.trace.steps:
        _write(stream.trace.text)
    _write("\n")
    notes.print(_numbers(stream.trace), style="dim", highlight=False, soft_wrap=True)
    if trace is not None:
        trace.write_text(stream.trace.to_json(), encoding="utf-8")
        notes.print(f"Trace written to {trace}.", style="dim", highlight=False, soft_wrap=True)
    if interrupted:
        raise typer.Exit(130)


@app.command()
def race(
    prompt: Prompt,
    methods: Annotated[
        str | None, typer.Option(help="Comma list, see `jakiro methods`; left out: plain decoding and the default one.")
    ] = None,
    raw: Raw = False,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    seed: Seed = 0,
    max_new_tokens: MaxNewTokens = 256,
    nodes: Nodes = None,
    depth: Depth = None,
    width: Width = None,
    target: Target = None,
    head: Head = None,
    device: Device = None,
    dtype: Dtype = None,
    numerics: Numerics = None,
    graphs: Graphs = True,
    draft_precision: DraftPrecision = None,
) -> None:
    """Several methods side by side on one prompt, with a table at the end."""
    from jakiro.cli.race_view import RaceView
    from jakiro.methods import DEFAULT, PLAIN, method_named
    from jakiro.zoo.loading import LoadOptions

    raced = (PLAIN.name, DEFAULT.name) if methods is None else tuple(comma_list("--methods", methods, str))
    for name in raced:
        method_named(name)
    sampling = SamplingParams(temperature, top_p, top_k, seed, max_new_tokens)
    tree = _tree(nodes, depth, width)
    _check_prompt(prompt)
    generator = _load(LoadOptions(target, head, device, dtype, numerics, draft_precision, graphs, len(raced)))
    running = generator.race(prompt, sampling, methods=raced, tree=tree, raw=raw)
    _say_notices(generator)
    RaceView(running.traces).show(running)


@app.command()
def bench(
    prompts: Annotated[Path | None, typer.Option(help="Prompts in Spec-Bench form; default: our own.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most this many prompts, from all categories in turn.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma list, see `jakiro methods`, or all; left out: plain decoding, the default one, hf-generate."
        ),
    ] = None,
    temperatures: Annotated[str, typer.Option(help="Comma list.")] = "0,1",
    seeds: Annotated[str, typer.Option(help="Comma list; 0-9 is a range.")] = "0",
    nodes: Annotated[
        str, typer.Option(help="Comma list of node budgets, each a lane; auto lets measured costs choose.")
    ] = "auto,24",
    depth: Depth = None,
    width: Width = None,
    max_new_tokens: MaxNewTokens = 128,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    target: Target = None,
    head: Head = None,
    device: Device = None,
    dtype: Dtype = None,
    numerics: Numerics = None,
    graphs: Graphs = True,
    draft_precision: DraftPrecision = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results; default: runs/bench/ and the time.")] = None,
    check_identical: Annotated[
        bool, typer.Option("--check-identical", help="Compare token ids only; resumes where it was stopped.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="With --check-identical: the json-lines file to go on with; default: one in --out."),
    ] = None,
    target_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="With --check-identical: go on with further seeds until so many are compared."),
    ] = None,
    scale_target: Annotated[
        str | None,
        typer.Option(help="7b: widen with zeros to a 7B pair's costs; same text. 7b-random: its true shape, no text."),
    ] = None,
    neighbours: Annotated[int, typer.Option(min=0, help="Programs that compute beside the benchmark.")] = 0,
    other_head: Annotated[
        str | None, typer.Option(help="A second head for the same target; takes part as the lane jakiro-other-head.")
    ] = None,
) -> None:
    """Measure speed, tau and acceptance on this machine, or check that texts are identical."""
    from jakiro.bench.command import compare, measure
    from jakiro.bench.questions import load_questions
    from jakiro.bench.runner import OTHER_HEAD, PEER_METHODS, BenchSettings, loadable
    from jakiro.bench.scaling import scaler
    from jakiro.zoo.loading import LoadOptions

    settings = BenchSettings(
        **({} if methods is None else {"methods": tuple(comma_list("--methods", methods, str))}),
        temperatures=tuple(comma_list("--temperatures", temperatures, float)),
        seeds=tuple(comma_list("--seeds", seeds, int)),
        nodes=tuple(comma_list("--nodes", nodes, int, words=("auto",))),
        max_new_tokens=max_new_tokens,
        top_p=top_p,
        top_k=top_k,
        tree=_tree(None, depth, width) or TreeConfig(),
    )
    if scale_target is not None and set(PEER_METHODS) & set(settings.methods):
        raise ValueError("--scale-target widens our copy of the target only; leave hf-… and llama-… out of --methods.")
    if scale_target is not None and other_head is not None:
        raise ValueError("--scale-target widens one head; leave --other-head out.")
    if other_head is not None and OTHER_HEAD not in settings.methods:
        settings = replace(settings, methods=(*settings.methods, OTHER_HEAD))
    if scale_target is not None and draft_precision is None:
        # The official pair's head is as wide as its numbers are
        draft_precision = "full"
    questions = load_questions(prompts, limit)
    widener = None if scale_target is None else scaler(scale_target)
    options = LoadOptions(target, head, device, dtype, numerics, draft_precision, graphs)
    generator = _load(options, widener)
    other_generator = None if other_head is None else _load(replace(options, head=other_head))
    _say_notices(generator)
    settings, left_out = loadable(generator, settings)
    for sentence in left_out:
        notes.print(sentence, style="yellow", markup=False, highlight=False, soft_wrap=True)
    console = _table_console()
    if widener is not None:
        console.print(widener.widening.sentence)
    if check_identical:
        log = state or (out or Path("runs") / "identical") / "comparisons.jsonl"
        if not compare(generator, settings, questions, log, console, target_tokens):
            raise typer.Exit(1)
    else:
        folder = out or Path("runs") / "bench" / f"{datetime.now():%Y%m%d-%H%M%S}"
        widening = widener and widener.widening
        measure(generator, settings, questions, folder, console, widening, neighbours, other_generator)


@app.command()
def methods() -> None:
    """List the ways to draft, and what else the benchmark can run."""
    from jakiro.bench.runner import OTHER_HEAD, PEER_METHODS, PLAIN_FAST
    from jakiro.methods import METHODS

    table = Table("name", "what it does", "needs", "paper", box=box.SIMPLE_HEAD)
    for method in METHODS.values():
        name = "\n".join((method.name, *(f"or {alias}" for alias in method.aliases)))
        needs = "a draft head" if method.needs.head else ""
        table.add_row(name, f"{method.title}. {method.sentence}", needs, method.paper and f"arXiv {method.paper}")
    _table_console().print(table)
    further = ", ".join((PLAIN_FAST, OTHER_HEAD, *PEER_METHODS))
    _table_console().print(f"In benchmarks also: {further}.", highlight=False, soft_wrap=True)


@app.command()
def doctor(
    target: Target = None,
    head: Head = None,
    device: Device = None,
    dtype: Dtype = None,
    run: Annotated[bool, typer.Option(help="End with a short run of both; --no-run loads no weights.")] = True,
    plan: Annotated[str | None, typer.Option(help="Estimate a target on a GPU that is not here.")] = None,
    card: Annotated[str | None, typer.Option(help="For --plan: t4, l4, a10g, a100 or h100; else all.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Time a cold and a warm start of the page.")] = False,
) -> None:
    """Say what is installed and found; with --target or --head, whether the two belong together."""
    from jakiro.cli.doctor import report
    from jakiro.zoo.loading import LoadOptions

    healthy = True
    for finding in report(LoadOptions(target, head, device, dtype), run, plan, card, start):
        healthy = healthy and finding.ok
        mark = "[green]ok[/]     " if finding.ok else "[red]problem[/]"
        Console().print(f"{mark} {finding.what}: ", end="")
        Console().print(finding.found, markup=False, highlight=False, soft_wrap=True)
    if not healthy:
        raise typer.Exit(1)


@app.command()
def export(
    head: Annotated[str, typer.Option(help="Draft head: a known name, a folder, or a Hub id.")],
    form: Annotated[
        str,
        typer.Option("--format", help="eagle; hub: a folder that is ready to upload; int8: the same, half as large."),
    ],
    out: Annotated[Path, typer.Option(help="A folder that does not exist yet.")],
) -> None:
    """Write a draft head in EAGLE's form, or as a folder for the Hub."""
    from jakiro.heads.export import export_head
    from jakiro.zoo import table as zoo

    for path in export_head(zoo.resolve(head=head).head_path, out, form):
        notes.print(f"Written: {path}", markup=False, highlight=False, soft_wrap=True)


_FORWARD = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=_FORWARD, add_help_option=False)
def corpus(context: typer.Context) -> None:
    """Let a target write the text that its head is trained on."""
    _training_command("corpus", context.args)


@app.command(context_settings=_FORWARD, add_help_option=False)
def train(context: typer.Context) -> None:
    """Train a draft head for a target."""
    _training_command("train", context.args)


@app.command(context_settings=_FORWARD, add_help_option=False)
def evaluate(context: typer.Context) -> None:
    """Measure a head's tau on prompts without running the target twice."""
    _training_command("evaluate", context.args)


@app.command(context_settings=_FORWARD, add_help_option=False)
def trigrams(context: typer.Context) -> None:
    """Count what follows each pair of tokens in a corpus, to draft from."""
    _training_command("trigrams", context.args)


def _training_command(name: str, arguments: list[str]) -> None:
    """Hands the arguments to a training command, whose options are its own; loaded only when asked for."""
    from jakiro.training import commands

    command = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    command.command(name)(getattr(commands, name))
    command(args=arguments, prog_name=f"jakiro {name}")


def _load(options, prepare=None):
    from transformers.utils import logging as transformers_logging

    from jakiro.generator import JakiroGenerator

    transformers_logging.disable_progress_bar()
    with notes.status("Loading the model…") as status:

        def captured(done: int, total: int) -> None:
            status.update(f"Capturing passes: {done} of {total}…")

        return JakiroGenerator.load(options, prepare, captured)


def _table_console() -> Console:
    """stdout, wide enough for the tables where it is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=150)


def _say_notices(generator) -> None:
    for notice in generator.status["notices"]:
        notes.print(notice, style="yellow", highlight=False, soft_wrap=True)


def _say_what_the_library_says() -> None:
    """Shows the library's own messages, such as a download, on stderr."""
    logger = logging.getLogger("jakiro")
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)


def _check_prompt(prompt: str) -> None:
    """Refuses an empty prompt before a model is loaded for it."""
    as_messages(prompt)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _numbers(trace: Trace) -> str:
    """One line about a run: tokens, speed, tau, where a step's time went, why it ended."""
    num_tokens = len(trace.token_ids)
    parts = [f"{num_tokens} token{'' if num_tokens == 1 else 's'}"]
    if trace.steps:
        steps = len(trace.steps)
        draft, verify, other = (
            sum(getattr(step, name) for step in trace.steps) / steps for name in ("draft_ms", "verify_ms", "other_ms")
        )
        parts += [f"{trace.tokens_per_second:.1f} tokens/s", f"τ {trace.tau:.2f} over {steps} steps"]
        parts += [f"step {draft:.1f} + {verify:.1f} + {other:.1f} ms (draft, verify, other)"]
    parts += [f"prefill {trace.header.prefill_ms:.0f} ms", f"ended: {trace.end_reason}"]
    return " · ".join(parts)


def _tree(nodes: int | None, depth: int | None, width: int | None) -> TreeConfig | None:
    """A fixed tree with what was given; None, where nothing was, leaves the size to measured costs."""
    given = {"nodes": nodes, "depth": depth, "width": width}
    given = {name: value for name, value in given.items() if value is not None}
    return TreeConfig(**given) if given else None
