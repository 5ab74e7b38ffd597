"""The attention function registered with transformers: exact within `exact_attention_if`, otherwise the stock one.

Imported when a target is created, because transformers' models take seconds to import.
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

# Per pass and thread: one model serves both numerics, and its config is common to all passes
_is_exact: ContextVar[bool] = ContextVar("is_exact", default=False)


@contextmanager
def exact_attention_if(is_exact: bool) -> Iterator[None]:
    """Run the passes of this block and thread with exact attention if `is_exact`, otherwise with the stock one."""
    token = _is_exact.set(is_exact)
    try:
        yield
    finally:
        _is_exact.reset(token)


def attention(module: nn.Module, *inputs, **kwargs) -> tuple[Tensor, None]:
    """Compute the attention that `exact_attention_if` selects; transformers passes the arguments."""
    return (exact_attention if _is_exact.get() else stock_attention)(module, *inputs, **kwargs)


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
    """Compute attention independently of the order of keys and of the number of rows.

    Args:
        module: Unused; part of transformers' interface.
        query: (1, heads, rows, head_dim).
        key: (1, kv_heads, keys, head_dim), float64 if the cache stores it.
        value: (1, kv_heads, keys, head_dim), float64 if the cache stores it.
        attention_mask: (1, 1, rows, keys) bool, True for keys that a row attends to.
        scaling: Factor of the scores; None for head_dim^-0.5.
        softcap: Soft cap of the scores, or None.
        kwargs: Other arguments of transformers.

    Returns:
        (1, rows, heads, head_dim) in the query's dtype, and None for the weights.

    Raises:
        ValueError: The mask is not bool, or the model has attention sinks, which are not supported.
    """
    if kwargs.get("s_aux") is not None:
        raise ValueError("Exact numerics does not support attention sinks; choose numerics='fast' for this model.")
    if attention_mask is None or attention_mask.dtype != torch.bool:
        raise ValueError("Exact attention requires an explicit bool mask.")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    bias = additive_mask(attention_mask[0, 0], torch.float64, query.shape[1] // key.shape[1])
    attended = attend_exactly(query[0], key[0], value[0], bias, scaling, softcap)
    return attended.transpose(0, 1)[None].contiguous(), None


def stock_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs
) -> tuple[Tensor, None]:
    """Compute torch's scaled dot-product attention over a cache that may have a wider dtype than the model.

    torch's kernel has no soft cap, so families with one get exact attention here too.
    """
    if kwargs.get("softcap") is not None:
        return exact_attention(module, query, key, value, attention_mask, **kwargs)
    return sdpa_attention_forward(module, query, key.to(query.dtype), value.to(query.dtype), attention_mask, **kwargs)


def register() -> None:
    """Register the attention function with transformers."""
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
