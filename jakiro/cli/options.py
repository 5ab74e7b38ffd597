"""Options that several commands share and that stand in no config; a command's own are declared there."""

from pathlib import Path
from typing import Annotated

import typer

from jakiro.config import CORPORA, METHODS_FROM, PROMPTS, TARGET, WIDTH


def option(text: str, *names: str, **settings):
    """typer's option with its help text first; `names` replace the parameter's own name."""
    return typer.Option(*names, help=text, **settings)


def argument(text: str):
    """typer's argument with its help text."""
    return typer.Argument(help=text)


Prompt = Annotated[str, option("The user's message, or with --raw the text to continue.")]
Raw = Annotated[bool, option("Continue the prompt as it is, without the chat template.", "--raw")]
Nodes = Annotated[int | None, option("A fixed tree of this many nodes, root included; 1 is plain decoding.")]
Depth = Annotated[int | None, option("A fixed tree whose deepest node has this depth.")]
Width = Annotated[int | None, option(WIDTH)]
Target = Annotated[str | None, option(TARGET)]
MethodsFrom = Annotated[list[str] | None, option(METHODS_FROM, metavar="MODULE")]

# Of the commands around training
Threads = Annotated[int | None, option("CPU threads; all if not given.", min=1)]
CorpusPaths = Annotated[list[Path], argument(CORPORA)]
Prompts = Annotated[Path | None, option(PROMPTS)]
