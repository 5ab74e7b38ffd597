"""Attention of the newest row of many texts, each over its own keys, as corpora are written; `texts.c` computes it."""

import ctypes

import torch
from torch import Tensor

from jakiro.kernels.compiled.library import Texts, library, num_threads

_MOST_QUERIES = 8


def works_on(keys: Tensor) -> bool:
    """Whether `attend_texts` takes keys of this device, type and width."""
    return (
        keys.device.type == "cpu"
        and keys.dtype == torch.bfloat16
        and library() is not None
        and keys.shape[-1] % (library().jakiro_panel() // 2) == 0
    )


def attend_texts(queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scaling: float) -> Tensor:
    """Attention of one row a text.

    Args:
        queries: (texts, heads, head_dim).
        keys, values: (texts or more, kv_heads, capacity, head_dim) bfloat16 that `works_on` takes, contiguous.
        lengths: (texts,) int64, keys that a row sees, from 1 to the capacity.
        scaling: of the scores.

    Returns:
        (texts, heads · head_dim) float32.
    """
    texts, heads, width = queries.shape
    kv_heads, capacity = keys.shape[1:3]
    lanes, threads = library().jakiro_panel() // 2, num_threads()
    longest = -(-capacity // lanes) * lanes
    queries = queries.float().contiguous()
    scores = queries.new_empty(threads * _MOST_QUERIES * longest)
    attended = queries.new_empty(texts, heads * width)
    sizes = (texts, heads, kv_heads, width, capacity, keys.stride(0), longest)
    read = (lengths, queries, keys, values, scores, attended)
    library().jakiro_attend_texts(
        ctypes.byref(Texts(*sizes, scaling, *(tensor.data_ptr() for tensor in read))), threads
    )
    return attended
