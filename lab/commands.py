"""Options that several commands of the lab share, and the function that runs a command."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from jakiro.cli.options import option
from jakiro.system import errors_as_one_sentence

Length = Annotated[int, option("Tokens of an answer.")]
Limit = Annotated[int, option("Number of prompts, alternately from all categories.")]
Out = Annotated[Path | None, option("Write all numbers to this JSON file.")]
Temperatures = Annotated[str, option("Comma list.")]


def run(command: Callable[..., None]) -> None:
    """Run a function as the command of a module; an invalid option or file ends it with one sentence."""
    with errors_as_one_sentence():
        typer.run(command)
