"""The command line: reads options, calls the library, prints the result; it computes nothing itself.

The answer goes to stdout, everything else to stderr. An error is one red line; the exit code is 2 for invalid input and
1 for an internal error.
"""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from jakiro import __version__
from jakiro.cli import errors, loading, options
from jakiro.cli.fields import build_config, options_from
from jakiro.cli.plot import plot
from jakiro.cli.serve import serve
from jakiro.config import About, SamplingParams, require
from jakiro.loading.options import LoadOptions
from jakiro.system import bound_waiting, comma_list, write_atomically, writing
from jakiro.trace import Trace

# Removed from the arguments by `main`, so that it is accepted anywhere
DEBUG = "--debug"
# Also works in a checkout, where no script `jakiro` is installed
PROGRAM = "python -m jakiro"
# Commands with option defaults from modules that import torch: module of `jakiro.cli`, and help text. They are
# imported only if they run, so that `--help` of the other commands takes 0.2 s instead of 4 s.
LAZY_COMMANDS = {
    "bench": ("bench", "Measure speed, tau and acceptance; compare the texts."),
    "corpus": ("training", "Write the text on which a head is trained."),
    "train": ("training", "Train a draft head for a target."),
    "evaluate": ("training", "Measure a head's tau on prompts."),
    "calibrate": ("training", "Calibrate a head again, on text it was not trained on."),
}


class LazyGroup(typer.core.TyperGroup):
    """A group of commands that imports the modules of `LAZY_COMMANDS` only if one of them runs."""

    def resolve_command(self, ctx, args):
        if args and args[0] in LAZY_COMMANDS:
            self.commands[args[0]] = import_command(args[0])
        return super().resolve_command(ctx, args)


def import_command(name: str):
    """Import a lazy command and return it."""
    module, _ = LAZY_COMMANDS[name]
    info = typer.models.CommandInfo(name, callback=getattr(import_module(f"jakiro.cli.{module}"), name))
    return typer.main.get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)


# Without rich markup, help is formatted by click, which never cuts an option's name in a narrow terminal
app = typer.Typer(
    cls=LazyGroup,
    help="Lossless speculative decoding, every step recorded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its exit code."""
    bound_waiting()
    loading.show_messages()
    _replace_unsupported_characters()
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = DEBUG in arguments
    arguments = [argument for argument in arguments if argument != DEBUG]
    try:
        app(args=arguments, prog_name=PROGRAM)
    except BrokenPipeError:
        # The reader of the output has exited. Python would report the error again while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - every error is printed as one line; --debug prints the traceback
        sys.exit(errors.print_error(error, debug))


def _print_version(requested: bool) -> None:
    if requested:
        loading.write(f"jakiro {__version__}\n")
        raise typer.Exit


@app.callback()
def every_command(
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Print the traceback of an error; allowed anywhere in the command.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
@options_from(options.PromptOptions, SamplingParams, options.GrammarOptions, LoadOptions)
def generate(
    method: Annotated[str | None, typer.Option(help="Drafting method; the command `methods` lists the names.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write every step to this JSON file.")] = None,
    **values,
) -> None:
    """Answer one prompt.

    The text streams to stdout; figures go to stderr.
    """
    prompt, load_options, sampling = _read_options(values)
    if method is not None:
        method = load_options.known_methods.named(method).name
    if trace is not None:
        loading.check_file(trace, "the trace")
    generator = loading.load(load_options)
    method = method and loading.runnable(generator, [method], load_options.known_methods)[0]
    sampling = prompt.with_recommended(generator, sampling)
    stream = generator.stream(prompt.text, sampling, method=method, tree=prompt.tree, raw=prompt.raw)
    loading.say_notices(generator)
    interrupted = False
    try:
        for step in stream:
            loading.write(step.text)
    except KeyboardInterrupt:
        stream.close()
        interrupted = True
    if not stream.trace.steps:
        loading.write(stream.trace.text)
    loading.write("\n")
    loading.say(summary_line(stream.trace), "dim")
    if trace is not None:
        write_atomically(trace, stream.trace.to_json())
        loading.say(f"Trace written to {trace}.", "dim")
    if interrupted:
        raise typer.Exit(130)


@app.command()
@options_from(
    options.PromptOptions, SamplingParams, options.GrammarOptions, LoadOptions, without=("record_alternatives",)
)
def race(
    methods: Annotated[
        str | None,
        typer.Option(help="Comma list, see `methods`; default: plain decoding, the head's method."),
    ] = None,
    **values,
) -> None:
    """Compare drafting methods on one prompt.

    The methods run in turns. The answer is printed first, then a table of the methods.
    """
    from jakiro.cli.race_view import show_race

    names = None if methods is None else tuple(comma_list("--methods", methods, str))
    prompt, load_options, sampling = _read_options(values, side_by_side=len(names) if names else 2)
    known_methods = load_options.known_methods
    unique = {known_methods.named(name).name for name in names or ()}
    require(len(unique) == len(names or ()), f"--methods must not repeat a method; got {methods!r}.")
    generator = loading.load(load_options)
    names = names and loading.runnable(generator, names, known_methods)
    sampling = prompt.with_recommended(generator, sampling)
    running = generator.race(prompt.text, sampling, methods=names, tree=prompt.tree, raw=prompt.raw)
    loading.say_notices(generator)
    show_race(running, known_methods)


def _read_options(values: dict, **others) -> tuple[options.PromptOptions, LoadOptions, SamplingParams]:
    """Check the options of a command that answers a prompt, before a model is loaded for it."""
    prompt = build_config(options.PromptOptions, values)
    load_options = build_config(LoadOptions, values, methods=_import_methods(prompt.methods_from), **others)
    grammar = build_config(options.GrammarOptions, values).grammar
    return prompt, load_options, build_config(SamplingParams, values, grammar=grammar)


app.command()(serve)
app.command()(plot)


@app.command()
def methods(methods_from: options.MethodsFrom = None) -> None:
    """List the drafting methods."""
    from jakiro.bench.peers import with_peers_of
    from jakiro.bench.runner import PLAIN_FAST
    from jakiro.drafters.registry import METHODS
    from jakiro.loading.registry import DEFAULT_TARGET, minutes_by_kind

    minutes = minutes_by_kind(DEFAULT_TARGET)
    table = Table("name", "what it does", "needs", "paper", box=box.SIMPLE_HEAD)
    for method in METHODS.with_further(_import_methods(methods_from)).values():
        name = "\n".join((method.name, *(f"or {alias}" for alias in method.aliases)))
        needs = method.asks or ("a draft head" if method.needs.head else "")
        if method.asks is None and method.trains is not None:
            trained = minutes.get(method.needs.head[0])
            needs += " of its own" if trained is None else f" of its own; the shipped one was trained {trained:.0f} min"
        table.add_row(name, f"{method.title}. {method.sentence}", needs, method.paper and f"arXiv {method.paper}")
    loading.table_console().print(table)
    lanes = ", ".join((PLAIN_FAST, *with_peers_of(methods_from or ())))
    loading.table_console().print(f"In benchmarks also: {lanes}.", highlight=False, soft_wrap=True)


@app.command()
@options_from(
    options.HeadOptions,
    LoadOptions,
    without=("numerics", "graphs", "draft_precision", "template_arguments", "draft_model"),
)
def doctor(
    plan: Annotated[str | None, typer.Option(help="Estimate this target's speed on GPUs, from data sheets.")] = None,
    card: Annotated[str | None, typer.Option(help="GPU for --plan: t4, l4, a10g, a100 or h100; default: all.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the checksums of all cached models and shipped heads.")
    ] = False,
    **values,
) -> None:
    """Report what is installed and cached.

    With --target or --head, check whether the two fit together. With --head, also measure why it accepts few tokens,
    which runs the target for about a minute.
    """
    from jakiro.cli.doctor import report

    _refuse_unused_options(plan, card, verify, values)
    measured = build_config(options.HeadOptions, values)
    healthy = True
    for finding in report(build_config(LoadOptions, values), plan, card, verify, measured):
        healthy = healthy and finding.ok
        mark = "[green]ok[/]     " if finding.ok else "[red]problem[/]"
        Console().print(mark, end=" ")
        Console().print(f"{finding.topic}: {finding.text}", markup=False, highlight=False, soft_wrap=True)
    if not healthy:
        raise typer.Exit(1)


def _refuse_unused_options(plan: str | None, card: str | None, verify: bool, values: dict) -> None:
    """Raise ValueError for an option of `doctor` that would change nothing."""
    require(card is None or plan is not None, "--card has no effect without --plan; add --plan with a target.")
    require(plan is None or not verify, "--plan and --verify are two reports; give one of them.")
    report = "with --plan" if plan is not None else "with --verify" if verify else ""
    if not report and values["target"] is None and values["head"] is None:
        report = "without --target or --head"
    without_head = ("quick", "prompts", "corpus") if values["head"] is None else ()
    unused = [name for name, value in values.items() if value not in (None, False) and (report or name in without_head)]
    require(not unused, f"--{', --'.join(unused)} has no effect {report or 'without --head'}; leave it out.")


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
        paths = export_head(registry.resolve(head=head).head_path, out, form)
    for path in paths:
        loading.say(f"Written: {path}")


for _name, (_, _help) in LAZY_COMMANDS.items():
    # A placeholder, which `LazyGroup` replaces before it runs
    app.command(_name, help=_help)(lambda: None)


def _import_methods(modules: Sequence[str] | None) -> tuple:
    """Return the drafting methods of the modules in --methods-from."""
    from jakiro.drafters.registry import methods_from

    return methods_from(modules or ())


def _replace_unsupported_characters() -> None:
    """Print a question mark for characters outside the terminal's encoding, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


_ENDS = {"no_token": "no_token (the settings forbid every next token)"}


def summary_line(trace: Trace) -> str:
    """Return one line about an answer: tokens, speed, tau, the parts of a step, and why it ended."""
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
