"""Helpers that several commands use: loading a pair, messages, output files, threads."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from jakiro.progress import reporting_to

if TYPE_CHECKING:
    from jakiro.drafters.registry import Methods

notes = Console(stderr=True)


def load(options):
    """Load a generator and show the progress on stderr.

    Args:
        options: a `LoadOptions`.
    """
    from transformers.utils import logging as transformers_logging

    from jakiro.generator import JakiroGenerator

    transformers_logging.disable_progress_bar()
    with notes.status("Loading the model…") as status:

        def show_progress(step: str, share: float | None, total_bytes: int | None) -> None:
            status.update(f"Loading the model: {step}{'' if share is None else f' {share:.0%}'}…")

        with reporting_to(show_progress):
            return JakiroGenerator.load(options)


def show_messages() -> None:
    """Print the library's log messages, such as downloads, to stderr.

    Retries of huggingface_hub are hidden, because the error after the last one has the same reason in one line.
    """
    logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)
    logger = logging.getLogger("jakiro")
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)


def set_up(threads: int | None) -> None:
    """Set the number of CPU threads and print the library's log messages."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    show_messages()


def table_console() -> Console:
    """Return a console on stdout that is wide enough for tables if stdout is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=150)


def write(text: str) -> None:
    """Write text to stdout unchanged and at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def say(message: str, style: str | None = None) -> None:
    """Print one message to stderr."""
    notes.print(message, style=style, markup=False, highlight=False, soft_wrap=True)


def say_notices(generator) -> None:
    """Print the notices of a generator to stderr."""
    for notice in generator.status["notices"]:
        say(notice, "yellow")


def check_file(file: Path, content: str) -> None:
    """Check that a file can be written.

    Args:
        file: path of the file.
        content: name of the content, for the message.

    Raises:
        OSError: the path is a folder, or its folder does not exist.
    """
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder; give a file name in it for {content}.")
    if not file.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {file.absolute().parent} for {content}.")


def runnable(generator, names: Sequence[str], methods: "Methods") -> tuple[str, ...]:
    """Return the methods that run with the loaded pair; print which ones need a draft head that is missing."""
    if generator.status["head"]:
        return tuple(names)
    for method in map(methods.named, names):
        if method.needs.head:
            reason = f"{method.name} needs {method.asks}." if method.asks else None
            say(reason or f"No draft head fits this model, so {method.name} cannot run.", "yellow")
    return methods.runnable_without_head(names)
