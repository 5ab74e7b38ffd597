"""What the training commands share: common options, comma lists, threads and messages."""

import logging
import sys
from collections.abc import Callable
from typing import Annotated, TypeVar

import torch
import typer

Number = TypeVar("Number", int, float)
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


def comma_list(option: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    """The values of a comma list.

    Raises:
        ValueError: a part is no number.
    """
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{option} takes numbers and commas; you gave {text!r}.") from error
