"""Order-independent attention, registered with transformers as "jakiro_exact", and the stock one beside it.

A tree leaves a token's keys in other slots than plain decoding does, and floating-point sums depend on the order of
their terms. Here scores, normaliser and weighted values are summed in float64 and only then rounded, so that order and
number of rows do not show in the result. Sliding windows come in through the mask; sinks are refused by name.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

EXACT_ATTENTION = "jakiro_exact"
STOCK_ATTENTION = "jakiro_stock"
# Of torch's attention kernels those that take any mask and plan nothing for the shapes they meet.
MASKED_KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


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


def additive_mask(visible: Tensor, dtype: torch.dtype, num_groups: int) -> Tensor:
    """A (rows, keys) mask as numbers to add to scores, repeated for a group's queries: (1, groups · rows, keys)."""
    mask = torch.full(visible.shape, -torch.inf, dtype=dtype, device=visible.device).masked_fill_(visible, 0.0)
    return (mask.repeat(num_groups, 1) if num_groups > 1 else mask)[None]


def attend_exactly(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scaling: float, softcap: float | None = None
) -> Tensor:
    """The sums themselves, in float64 from the products on.

    Args:
        query: (heads, rows, head_dim); key, value: (kv_heads, keys, head_dim).
        bias: what `additive_mask` gives in float64.

    Returns:
        (heads, rows, head_dim) in the query's dtype.
    """
    num_heads, rows, head_dim = query.shape
    grouped = query.double().reshape(key.shape[0], -1, head_dim)
    if softcap is None:
        scores = torch.baddbmm(bias, grouped, key.double().transpose(1, 2), alpha=scaling)
    else:
        scores = torch.bmm(grouped, key.double().transpose(1, 2)).mul_(scaling / softcap).tanh_().mul_(softcap) + bias
    attended = torch.bmm(scores.softmax(-1), value.double())
    return attended.to(query.dtype).view(num_heads, rows, -1)


def attend_grouped(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float) -> Tensor:
    """Stock attention with the queries that share a key/value head as its rows.

    On a GPU, torch's fused kernel that takes a mask knows no grouped queries; this way they need no copies of the keys.

    Args:
        queries: (heads, rows, head_dim); keys, values: (1, kv_heads, keys, head_dim).
        mask: what `additive_mask` gives.

    Returns:
        (heads, rows, head_dim).
    """
    rows = queries.reshape(1, keys.shape[1], -1, queries.shape[-1])
    with sdpa_kernel(MASKED_KERNELS):
        attended = functional.scaled_dot_product_attention(
            rows, keys.to(rows.dtype), values.to(rows.dtype), attn_mask=mask[None], scale=scaling
        )
    return attended.reshape(queries.shape)


def stock_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs
) -> tuple[Tensor, None]:
    """torch's scaled dot-product attention over a cache that may keep wider numbers than the model computes with.

    It knows no soft cap, so families that have one get the exact sums here too.
    """
    if kwargs.get("softcap") is not None:
        return exact_attention(module, query, key, value, attention_mask, **kwargs)
    return sdpa_attention_forward(module, query, key.to(query.dtype), value.to(query.dtype), attention_mask, **kwargs)


for _name, _function in ((EXACT_ATTENTION, exact_attention), (STOCK_ATTENTION, stock_attention)):
    AttentionInterface.register(_name, _function)
    AttentionMaskInterface.register(_name, sdpa_mask)
