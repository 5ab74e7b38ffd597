"""How many threads compute an answer: as many as have a core of their own."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from jakiro.cores import Cores, own_cores
from jakiro.kernels.compiled.library import library, num_threads, set_num_threads


@contextmanager
def fitting_threads() -> Iterator[None]:
    """Within the block this thread computes with no more threads than other programs leave cores for.

    Torch's operations too. Compiled passes give the same bits with any number of threads; torch's kernels need not, so
    without compiled code the number stays what it is.
    """
    if library() is None:
        yield
        return
    with so_many_threads(_cores().threads(num_threads())):
        yield


@contextmanager
def so_many_threads(number: int) -> Iterator[None]:
    """Within the block this thread computes with so many threads at most; needs compiled code to make them fewer."""
    before = torch.get_num_threads()
    if number >= num_threads() or library() is None:
        yield
        return
    set_num_threads(number)
    try:
        yield
    finally:
        set_num_threads(before)


@functools.cache
def _cores() -> Cores:
    return own_cores()
