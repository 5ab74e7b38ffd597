"""What the training commands share: common options, threads and messages."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer


def option(text: str, *names: str, **settings):
    """typer's option with its help text first; `names` replace the parameter's own name."""
    return typer.Option(*names, help=text, **settings)


def argument(text: str):
    """typer's argument with its help text."""
    return typer.Argument(help=text)


Target = Annotated[str | None, option("Target model: a known name, a folder, or a Hub id.")]
Device = Annotated[str | None, option("cpu or cuda; a GPU is taken where there is one.")]
Dtype = Annotated[str | None, option("float32, bfloat16 or float16; what suits the device.")]
Threads = Annotated[int | None, option("CPU threads; all if not given.")]
CorpusPaths = Annotated[list[Path], argument("Corpus files (*.jsonl.gz) or folders that hold them.")]
Prompts = Annotated[Path | None, option("Prompts in Spec-Bench form; our own if not given.")]
MethodsFrom = Annotated[
    list[str] | None,
    option("Add the drafting methods in this module's METHODS; repeatable.", metavar="MODULE"),
]


def set_up(threads: int | None) -> None:
    """Takes the number of threads and shows the library's messages on stderr."""
    if threads is not None:
        torch.set_num_threads(threads)
    for name in ("jakiro", "jakiro.training"):
        logging.getLogger(name).setLevel(logging.INFO)
    if not logging.getLogger("jakiro").handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logging.getLogger("jakiro").addHandler(handler)
