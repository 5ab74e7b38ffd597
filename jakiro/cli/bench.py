"""The command `bench`: its options, checked before anything is loaded, and what they ask for."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

from jakiro.bench.command import measure
from jakiro.bench.peers import with_peers_of
from jakiro.bench.runner import BenchSettings, head_names, loadable
from jakiro.cli import loading, options
from jakiro.cli.fields import filled, options_from
from jakiro.config import About, TreeConfig
from jakiro.drafters.registry import METHODS
from jakiro.drafters.registry import methods_from as read_methods
from jakiro.loading import registry
from jakiro.loading.options import LoadOptions
from jakiro.prompts import load_questions


@options_from(BenchSettings, LoadOptions)
def bench(
    prompts: options.Prompts = None,
    limit: Annotated[int | None, options.option(About.LIMIT)] = None,
    depth: Annotated[int | None, options.option(options.DEPTH)] = None,
    width: Annotated[int | None, options.option(About.WIDTH)] = None,
    out: Annotated[Path | None, options.option("Folder for results; if not given, one in runs/bench.")] = None,
    methods_from: options.MethodsFrom = None,
    **given,
) -> None:
    """Measure speed, tau and acceptance on this machine, and whether texts are the same."""
    further = read_methods(methods_from or ())
    tree = options.fixed_tree(depth=depth, width=width) or TreeConfig()
    taking_part = {"known": METHODS.with_further(further), "peers": with_peers_of(methods_from or ())}
    settings = filled(BenchSettings, given, tree=tree, **taking_part)
    questions = load_questions(prompts, limit)
    generator = loading.load(filled(LoadOptions, given, methods=further))
    loading.say_notices(generator)
    settings, left_out = loadable(generator, settings)
    unequal = registry.unequal_training(head_names(generator, settings))
    for sentence in (*left_out, *([unequal] if unequal else [])):
        loading.say(sentence, "yellow")
    folder = out or Path("runs") / "bench" / f"{datetime.now():%Y%m%d-%H%M%S}"
    measure(generator, settings, questions, folder, loading.table_console())
