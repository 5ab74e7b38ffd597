"""Attention under the name that transformers looks it up by: exact within a pass that asks for it, else the stock one.

Imported where a target is made, because transformers' models take seconds to import.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from jakiro.models.families import ATTENTION
from jakiro.ops.attention import additive_mask, attend_exactly

# Per pass and thread: one model serves both numerics, and its config says the same to all passes
_exact: ContextVar[bool] = ContextVar("exact", default=False)


@contextmanager
def attending(exact: bool) -> Iterator[None]:
    """Within this block, in this thread, passes attend exactly or as the stock model does."""
    token = _exact.set(exact)
    try:
        yield
    finally:
        _exact.reset(token)


def attention(module: nn.Module, *inputs, **kwargs) -> tuple[Tensor, None]:
    """What `attending` asks for; arguments as transformers gives them."""
    return (exact_attention if _exact.get() else stock_attention)(module, *inputs, **kwargs)


def exact_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Attention whose result depends neither on the order of keys nor on how many rows run together.

    Args:
        query: (1, heads, rows, head_dim); key, value: (1, kv_heads, keys, head_dim), float64 where the cache keeps it.
        attention_mask: (1, 1, rows, keys) bool, True where a row may look.

    Returns:
        (1, rows, heads, head_dim) in the query's dtype, and None for the weights.

    Raises:
        ValueError: no bool mask, or attention sinks, which this attention does not compute.
    """
    if kwargs.get("s_aux") is not None:
        raise ValueError("Exact numerics compute no attention sinks; choose numerics='fast' for this model.")
    if attention_mask is None or attention_mask.dtype != torch.bool:
        raise ValueError("exact attention needs an explicit bool mask")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    bias = additive_mask(attention_mask[0, 0], torch.float64, query.shape[1] // key.shape[1])
    attended = attend_exactly(query[0], key[0], value[0], bias, scaling, softcap)
    return attended.transpose(0, 1)[None].contiguous(), None


def stock_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs
) -> tuple[Tensor, None]:
    """torch's scaled dot-product attention over a cache that may keep wider numbers than the model computes with.

    It knows no soft cap, so families that have one get the exact sums here too.
    """
    if kwargs.get("softcap") is not None:
        return exact_attention(module, query, key, value, attention_mask, **kwargs)
    return sdpa_attention_forward(module, query, key.to(query.dtype), value.to(query.dtype), attention_mask, **kwargs)


def register() -> None:
    """Makes it known to transformers under its name."""
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
