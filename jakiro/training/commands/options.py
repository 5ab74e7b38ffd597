"""What the training commands share: common options, threads and messages."""

import logging
import sys
from typing import Annotated

import torch
import typer

Target = Annotated[str | None, typer.Option(help="Target model: a known name, a folder, or a Hub id.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; all when not given.")]


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
