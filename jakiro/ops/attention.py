"""Order-independent attention, and the stock one with grouped queries.

A tree leaves a token's keys in other slots than plain decoding does, and floating-point sums depend on the order of
their terms. Here scores, normaliser and weighted values are summed in float64 and only then rounded, so that order and
number of rows show in about one of 2^29 results or fewer: where a sum lies beside a rounding boundary. That is no
proof, as compiled code has one; it is tried at load, and where a difference is found no equal bits are promised (two
rows over 200 keys take 99 µs a layer, by torch's own attention 55 to 68).
Sliding windows come in through the mask. `jakiro.models.attention_modes` registers it with transformers, which takes
seconds to import.
"""

import torch
from torch import Tensor
from torch.nn import functional


def additive_mask(visible: Tensor, dtype: torch.dtype, num_groups: int) -> Tensor:
    """A (rows, keys) mask as numbers to add to scores, repeated for a group's queries: (1, groups · rows, keys)."""
    mask = torch.full((num_groups, *visible.shape), -torch.inf, dtype=dtype, device=visible.device)
    return mask.masked_fill_(visible, 0.0).view(1, -1, visible.shape[1])


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
    Loading turns cuDNN's kernel off for good: switched for each call, kernels would change under other threads too.

    Args:
        queries: (heads, rows, head_dim); keys, values: (1, kv_heads, keys, head_dim).
        mask: what `additive_mask` gives.

    Returns:
        (heads, rows, head_dim).
    """
    rows = queries.reshape(1, keys.shape[1], -1, queries.shape[-1])
    attended = functional.scaled_dot_product_attention(
        rows, keys.to(rows.dtype), values.to(rows.dtype), attn_mask=mask[None], scale=scaling
    )
    return attended.reshape(queries.shape)
