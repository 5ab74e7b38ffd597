"""What several commands do first: load a pair, say what there is to know about it, and read a tree's options; those
around training take their threads.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from jakiro.config import TreeConfig

if TYPE_CHECKING:
    from jakiro.methods import Methods

notes = Console(stderr=True)


def load(options):
    from transformers.utils import logging as transformers_logging

    from jakiro.generator import JakiroGenerator

    transformers_logging.disable_progress_bar()
    with notes.status("Loading the model…") as status:

        def captured(done: int, total: int) -> None:
            status.update(f"Capturing passes: {done} of {total}…")

        return JakiroGenerator.load(options, progress=captured)


def show_messages() -> None:
    """Shows the library's own messages, such as a download, on stderr."""
    logger = logging.getLogger("jakiro")
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)


def set_up(threads: int | None) -> None:
    """Takes the number of threads and shows the library's messages."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    show_messages()


def table_console() -> Console:
    """stdout, wide enough for the tables where it is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=150)


def say_notices(generator) -> None:
    for notice in generator.status["notices"]:
        notes.print(notice, style="yellow", highlight=False, soft_wrap=True)


def runnable(generator, names: Sequence[str], known: "Methods") -> tuple[str, ...]:
    """Those methods that run where the model has no draft head at all, else plain decoding; says which do not."""
    from jakiro.methods import PLAIN

    if generator.status["head"]:
        return tuple(names)
    headless = [name for name in names if known.named(name).needs.head]
    asking = [known.named(name) for name in headless if known.named(name).asks]
    said = [f"{method.name} needs {method.asks}." for method in asking]
    lacking = [name for name in headless if known.named(name) not in asking]
    if lacking:
        said.append(f"No draft head fits this model, so {', '.join(lacking)} cannot run.")
    for sentence in said:
        notes.print(sentence, style="yellow", highlight=False, soft_wrap=True)
    return tuple(name for name in names if name not in headless) or (PLAIN.name,)


def tree(nodes: int | None, depth: int | None, width: int | None) -> TreeConfig | None:
    """A fixed tree with what was given; None, where nothing was, leaves the size to measured costs."""
    given = {"nodes": nodes, "depth": depth, "width": width}
    given = {name: value for name, value in given.items() if value is not None}
    return TreeConfig(**given) if given else None
