"""Ways of attending by the names that transformers looks them up by: "jakiro_exact", and the stock one beside it.

Imported where a target is made, because transformers' models take seconds to import.
"""

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from jakiro.kernels.attention import additive_mask, attend_exactly
from jakiro.target.families import EXACT_ATTENTION, STOCK_ATTENTION


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
        raise ValueError("exact numerics does not compute attention sinks; choose numerics='fast' for this model")
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
    """Makes both known to transformers under their names."""
    for name, function in ((EXACT_ATTENTION, exact_attention), (STOCK_ATTENTION, stock_attention)):
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, sdpa_mask)
