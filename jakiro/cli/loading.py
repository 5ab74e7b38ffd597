"""What several commands do: load a pair, say what there is to know, check where a file goes, take their threads."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from jakiro.progress import reporting_to

if TYPE_CHECKING:
    from jakiro.drafters.registry import Methods

notes = Console(stderr=True)


def load(options):
    from transformers.utils import logging as transformers_logging

    from jakiro.generator import JakiroGenerator

    transformers_logging.disable_progress_bar()
    with notes.status("Loading the model…") as status:

        def told(step: str, share: float | None, total_bytes: int | None) -> None:
            status.update(f"Loading the model: {step}{'' if share is None else f' {share:.0%}'}…")

        with reporting_to(told):
            return JakiroGenerator.load(options)


def show_messages() -> None:
    """Shows the library's own messages, such as a download, on stderr; the Hub's retries end in a sentence of ours."""
    logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)
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


def say(sentence: str, style: str | None = None) -> None:
    """One sentence on stderr."""
    notes.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def say_notices(generator) -> None:
    for notice in generator.status["notices"]:
        say(notice, "yellow")


def check_file(file: Path, what: str) -> None:
    """Raises OSError where a file to be written is a folder, or has none to lie in."""
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder; give a name in it for {what}.")
    if not file.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {file.absolute().parent} for {what}.")


def runnable(generator, names: Sequence[str], known: "Methods") -> tuple[str, ...]:
    """Those methods that run where the model has no draft head at all, else plain decoding; says which do not."""
    from jakiro.drafters.registry import PLAIN

    if generator.status["head"]:
        return tuple(names)
    headless = [method for method in map(known.named, names) if method.needs.head]
    for method in headless:
        lack = f"{method.name} needs {method.asks}." if method.asks else None
        say(lack or f"No draft head fits this model, so {method.name} cannot run.", "yellow")
    return tuple(name for name in names if known.named(name) not in headless) or (PLAIN.name,)
