"""The command `bench`: checks its options before anything is loaded, then runs the benchmark."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

from jakiro.bench.command import measure
from jakiro.bench.peers import with_peers_of
from jakiro.bench.runner import BenchSettings, head_names, loadable
from jakiro.cli import loading, options
from jakiro.cli.fields import build_config, options_from
from jakiro.config import About, TreeConfig
from jakiro.drafters.registry import METHODS
from jakiro.drafters.registry import methods_from as import_methods
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
    **values,
) -> None:
    """Measure speed, tau and acceptance on this machine, and compare the texts."""
    outside = import_methods(methods_from or ())
    tree = options.fixed_tree(depth=depth, width=width) or TreeConfig()
    registered = {"known": METHODS.with_further(outside), "peers": with_peers_of(methods_from or ())}
    settings = build_config(BenchSettings, values, tree=tree, **registered)
    questions = load_questions(prompts, limit)
    generator = loading.load(build_config(LoadOptions, values, methods=outside))
    loading.say_notices(generator)
    settings, notices = loadable(generator, settings)
    unequal = registry.unequal_training(head_names(generator, settings))
    for notice in (*notices, *([unequal] if unequal else [])):
        loading.say(notice, "yellow")
    folder = out or Path("runs") / "bench" / f"{datetime.now():%Y%m%d-%H%M%S}"
    measure(generator, settings, questions, folder, loading.table_console())
