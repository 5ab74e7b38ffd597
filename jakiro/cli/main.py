"""The command line: reads options, calls the library, shows the result; it computes nothing itself. The text goes to
stdout, everything about it to stderr. Errors are one red sentence: exit code 2 for bad input, 1 for a fault of ours.
"""

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from jakiro.cli import errors, loading, options
from jakiro.cli.fields import filled, options_from
from jakiro.cli.serve import serve
from jakiro.config import About, SamplingParams
from jakiro.loading.options import LoadOptions
from jakiro.system import bound_waiting, comma_list, write_atomically, writing
from jakiro.trace import Trace

# Taken from the line by `main`, wherever it stands
DEBUG = "--debug"
# What works in a checkout, too, where no script `jakiro` is installed
PROGRAM = "python -m jakiro"

app = typer.Typer(
    help="Lossless speculative decoding, every step recorded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and leaves the process with its exit code."""
    bound_waiting()
    loading.show_messages()
    _replace_what_a_terminal_lacks()
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = DEBUG in arguments
    try:
        app(args=[each for each in arguments if each != DEBUG], prog_name=PROGRAM)
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - whatever it is, a person reads a sentence, and --debug shows the rest
        sys.exit(errors.tell(error, debug))


@app.callback()
def every_command(
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show the traceback of an error; allowed anywhere in the command.")
    ] = False,
) -> None:
    pass


@app.command()
@options_from(options.Asked, SamplingParams, options.AnswerForm, LoadOptions)
def generate(
    method: Annotated[str | None, typer.Option(help="How to draft; the command `methods` lists the names.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write every step to this JSON file.")] = None,
    **given,
) -> None:
    """Answer one prompt; the text streams to stdout, the numbers go to stderr."""
    asked, load_options, sampling = _read(given)
    if method is not None:
        method = load_options.known_methods.named(method).name
    if trace is not None:
        loading.check_file(trace, "the trace")
    generator = loading.load(load_options)
    method = method and loading.runnable(generator, [method], load_options.known_methods)[0]
    sampling = asked.sampling(generator, sampling)
    stream = generator.stream(asked.prompt, sampling, method=method, tree=asked.tree, raw=asked.raw)
    loading.say_notices(generator)
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
    loading.say(_numbers(stream.trace), "dim")
    if trace is not None:
        write_atomically(trace, stream.trace.to_json())
        loading.say(f"Trace written to {trace}.", "dim")
    if interrupted:
        raise typer.Exit(130)


@app.command()
@options_from(options.Asked, SamplingParams, options.AnswerForm, LoadOptions, without=("record_alternatives",))
def race(
    methods: Annotated[
        str | None,
        typer.Option(help="Comma list, see `methods`; default: plain decoding, the head's method."),
    ] = None,
    **given,
) -> None:
    """Run several methods in turns on one prompt, write the answer, and compare them in a table."""
    from jakiro.cli.race_view import show_race

    raced = None if methods is None else tuple(comma_list("--methods", methods, str))
    asked, load_options, sampling = _read(given, side_by_side=len(raced) if raced else 2)
    lanes = [load_options.known_methods.named(name).name for name in raced or ()]
    if len(set(lanes)) < len(lanes):
        raise ValueError(f"--methods must not repeat a method; you gave {methods!r}.")
    generator = loading.load(load_options)
    raced = raced and loading.runnable(generator, raced, load_options.known_methods)
    sampling = asked.sampling(generator, sampling)
    running = generator.race(asked.prompt, sampling, methods=raced, tree=asked.tree, raw=asked.raw)
    loading.say_notices(generator)
    show_race(running, load_options.known_methods)


def _read(given: dict, **others) -> tuple[options.Asked, LoadOptions, SamplingParams]:
    """What a prompt's command was given; what is wrong with it is refused before a model is loaded for it."""
    asked = filled(options.Asked, given)
    load_options = filled(LoadOptions, given, methods=_further(asked.methods_from), **others)
    sampling = filled(SamplingParams, given, grammar=filled(options.AnswerForm, given).grammar)
    return asked, load_options, sampling


app.command()(serve)


@app.command()
def methods(methods_from: options.MethodsFrom = None) -> None:
    """List the drafting methods, and what else the benchmark can run."""
    from jakiro.bench.peers import with_peers_of
    from jakiro.bench.runner import PLAIN_FAST
    from jakiro.drafters.registry import METHODS
    from jakiro.loading.registry import DEFAULT_TARGET, minutes_by_kind

    minutes = minutes_by_kind(DEFAULT_TARGET)
    table = Table("name", "what it does", "needs", "paper", box=box.SIMPLE_HEAD)
    for method in METHODS.with_further(_further(methods_from)).values():
        name = "\n".join((method.name, *(f"or {alias}" for alias in method.aliases)))
        needs = method.asks or ("a draft head" if method.needs.head else "")
        if method.trains is not None:
            trained = minutes.get(method.needs.head[0])
            needs += " of its own" if trained is None else f" of its own; the shipped one was trained {trained:.0f} min"
        table.add_row(name, f"{method.title}. {method.sentence}", needs, method.paper and f"arXiv {method.paper}")
    loading.table_console().print(table)
    further = ", ".join((PLAIN_FAST, *with_peers_of(methods_from or ())))
    loading.table_console().print(f"In benchmarks also: {further}.", highlight=False, soft_wrap=True)


@app.command()
@options_from(LoadOptions)
def doctor(
    plan: Annotated[str | None, typer.Option(help="Estimate a target on a GPU that is not here.")] = None,
    card: Annotated[str | None, typer.Option(help="For --plan: t4, l4, a10g, a100 or h100; else all.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read cached models and shipped heads whole and compare their hashes.")
    ] = False,
    **given,
) -> None:
    """Report what is installed and cached; with --target or --head, check whether the two fit."""
    from jakiro.cli.doctor import report

    healthy = True
    for finding in report(filled(LoadOptions, given), plan, card, verify):
        healthy = healthy and finding.ok
        mark = "[green]ok[/]     " if finding.ok else "[red]problem[/]"
        Console().print(mark, end=" ")
        Console().print(f"{finding.what}: {finding.found}", markup=False, highlight=False, soft_wrap=True)
    if not healthy:
        raise typer.Exit(1)


@app.command()
def export(
    head: Annotated[str, typer.Option(help=About.HEAD)],
    form: Annotated[
        str,
        typer.Option("--format", help="hub: a folder that is ready to upload; int8: the same, half as large."),
    ],
    out: Annotated[Path, typer.Option(help="A folder that does not exist yet.")],
) -> None:
    """Write a draft head as a folder for the Hub."""
    from jakiro.heads.export import export_head
    from jakiro.loading import registry

    with writing(out):
        written = export_head(registry.resolve(head=head).head_path, out, form)
    for path in written:
        loading.say(f"Written: {path}")


def _later(module: str, name: str) -> Callable[[typer.Context], None]:
    """Hands its arguments to a command whose options' defaults are the library's, which takes torch to read.

    So `--help` comes in a fifth of a second, not in four.
    """

    def run(context: typer.Context) -> None:
        command = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
        command.command(name)(getattr(import_module(f"jakiro.cli.{module}"), name))
        command(args=context.args, prog_name=f"{PROGRAM} {name}")

    return run


LATER = {"bench": "bench"} | dict.fromkeys(("corpus", "train", "evaluate", "calibrate"), "training")
for _name, _sentence in (
    ("bench", "Measure speed, tau and acceptance on this machine, and whether texts are the same."),
    ("corpus", "Let a target write the text that its head is trained on."),
    ("train", "Train a draft head for a target."),
    ("evaluate", "Measure a head's tau on prompts."),
    ("calibrate", "Calibrate a head again on text that it was not trained on."),
):
    _forward = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(_name, help=_sentence, context_settings=_forward, add_help_option=False)(_later(LATER[_name], _name))


def _further(modules: Sequence[str] | None) -> tuple:
    """The methods of `--methods-from`."""
    from jakiro.drafters.registry import methods_from

    return methods_from(modules or ())


def _replace_what_a_terminal_lacks() -> None:
    """Writes a question mark for a character that the terminal's encoding lacks, in place of ending the answer."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


_ENDS = {"no_token": "no_token (the settings forbid every next token)"}


def _numbers(trace: Trace) -> str:
    """One line about a run: tokens, speed, tau, where a step's time went, why it ended."""
    num_tokens = len(trace.token_ids)
    parts = [f"{num_tokens} token{'' if num_tokens == 1 else 's'}"]
    if trace.steps:
        draft, verify, other = trace.step_ms
        parts += [f"{trace.tokens_per_second:.1f} tokens/s", f"τ {trace.tau:.2f} over {len(trace.steps)} steps"]
        parts += [f"step {draft:.1f} + {verify:.1f} + {other:.1f} ms (draft, verify, other)"]
    parts += [f"prefill {trace.header.prefill_ms:.0f} ms", f"ended: {_ENDS.get(trace.end_reason, trace.end_reason)}"]
    if trace.header.sampling.get("grammar") and trace.end_reason != "eos":
        parts.append("cut before its form was complete")
    return " · ".join(parts)
