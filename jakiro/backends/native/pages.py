"""Memory for weights, in large pages where the system has them.

A pass reads every weight once. With pages of 4 kB, each core waits at every 64th line for the next page's address.
"""

import mmap
import threading
from contextlib import suppress

import torch
from torch import Tensor

# Matrices smaller than a page of 2 MB share one with their neighbours
_CHUNK, _LINE = 2**25, 64
_lock, _rest = threading.Lock(), torch.empty(0, dtype=torch.uint8)


def in_large_pages(weight: Tensor) -> Tensor:
    """A contiguous copy in `large_pages`."""
    return large_pages(weight.nbytes).view(weight.dtype).view(weight.shape).copy_(weight)


def large_pages(num_bytes: int) -> Tensor:
    """Zeros, uint8, that begin at a line of the cache; their memory is free again once that of their neighbours is."""
    global _rest
    with _lock:
        if len(_rest) < num_bytes:
            _rest = _mapped(max(num_bytes, _CHUNK))
        place, _rest = _rest[:num_bytes], _rest[-(-num_bytes // _LINE) * _LINE :]
    return place


def _mapped(size: int) -> Tensor:
    """(size,) uint8, of which only touched pages take memory."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Not every system has such pages
    with suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
