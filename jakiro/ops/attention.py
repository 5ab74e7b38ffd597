"""Order-independent attention, and stock attention with grouped queries.

Tree passes store the keys of a token in other slots than plain decoding, and floating-point sums depend on the order of
their terms. Exact attention therefore sums scores, normalizer and weighted values in float64 before rounding. Order and
number of rows then change about one of 2^29 results: a sum next to a rounding boundary. This is not a guarantee, unlike
in compiled code. Trial passes at load compare the bits, and equal bits are not promised if they differ. Two rows over
200 keys take 99 µs per layer, with torch's own attention 55 to 68.

The mask contains sliding windows. `jakiro.models.attention_modes` registers this attention with transformers, which
takes seconds to import.
"""

import torch
from torch import Tensor
from torch.nn import functional


def additive_mask(visible: Tensor, dtype: torch.dtype, num_groups: int) -> Tensor:
    """Return a (rows, keys) mask as addends of scores, repeated for a group's queries: (1, groups · rows, keys)."""
    mask = torch.full((num_groups, *visible.shape), -torch.inf, dtype=dtype, device=visible.device)
    return mask.masked_fill_(visible, 0.0).view(1, -1, visible.shape[1])


def attend_exactly(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scaling: float, softcap: float | None = None
) -> Tensor:
    """Compute attention with products and sums in float64.

    Args:
        query: (heads, rows, head_dim).
        key: (kv_heads, keys, head_dim).
        value: (kv_heads, keys, head_dim).
        bias: Result of `additive_mask` in float64.
        scaling: Factor of the scores.
        softcap: Soft cap of the scores, or None.

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
    """Compute stock attention; queries with a common key/value head become rows of one head.

    On a GPU, torch's fused kernel with a mask does not support grouped queries, and copying the keys costs time. The
    kernel of cuDNN is disabled once at load: a switch for each call would change the kernels of other threads, too.

    Args:
        queries: (heads, rows, head_dim).
        keys: (1, kv_heads, keys, head_dim).
        values: (1, kv_heads, keys, head_dim).
        mask: Result of `additive_mask`.
        scaling: Factor of the scores.

    Returns:
        (heads, rows, head_dim).
    """
    rows = queries.reshape(1, keys.shape[1], -1, queries.shape[-1])
    attended = functional.scaled_dot_product_attention(
        rows, keys.to(rows.dtype), values.to(rows.dtype), attn_mask=mask[None], scale=scaling
    )
    return attended.reshape(queries.shape)
