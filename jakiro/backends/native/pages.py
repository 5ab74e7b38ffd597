"""Memory for weights, in large pages if the system has them.

A pass reads every weight once. With pages of 4 kB, each core looks up the address of a page after every 64 cache lines.
"""

import mmap
import threading
from contextlib import suppress

import torch
from torch import Tensor

# Matrices smaller than a page of 2 MB share pages
_CHUNK, _LINE = 2**25, 64
_lock, _rest = threading.Lock(), torch.empty(0, dtype=torch.uint8)


def in_large_pages(weight: Tensor) -> Tensor:
    """Return a contiguous copy in `large_pages`."""
    return large_pages(weight.nbytes).view(weight.dtype).view(weight.shape).copy_(weight)


def large_pages(num_bytes: int) -> Tensor:
    """Return uint8 zeros aligned to a cache line; their memory is freed with that of the tensors in the same chunk.

    Only pages that are accessed use memory.
    """
    global _rest
    with _lock:
        if len(_rest) < num_bytes:
            memory = mmap.mmap(-1, max(num_bytes, _CHUNK), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            # Not every system has such pages
            with suppress(AttributeError, OSError):
                memory.madvise(mmap.MADV_HUGEPAGE)
            _rest = torch.frombuffer(memory, dtype=torch.uint8)
        place, _rest = _rest[:num_bytes], _rest[-(-num_bytes // _LINE) * _LINE :]
    return place
