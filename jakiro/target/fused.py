"""The lean pass in as few kernels as torch's operations allow: on a GPU each costs microseconds whatever it computes.

Queries, keys and values are rotated in one operation, the values by an angle of zero, and written where attention reads
them; keys and values enter the cache together; matrix products add what attention and MLP give to the stream. Exact
attention leaves the pad rows out: they exist for the matrix products, which round by the number of rows. A pass over a
tree is 438 to 560 operations this way, one after another 553 to 817 (counted at the shapes of 7B and 8B targets).
"""

import torch
from torch import Tensor
from torch.nn import functional

from jakiro.kernels.attention import additive_mask, attend_exactly, attend_grouped
from jakiro.kernels.cache import PassCache
from jakiro.kernels.rotary import signed


def run_fused(
    decoder,
    hidden: Tensor,
    positions: Tensor,
    visible: Tensor,
    cache: PassCache,
    exact: bool,
    feature_layers: tuple[int, ...],
    live: int,
) -> tuple[Tensor, list[Tensor]]:
    """All layers of a `LeanDecoder`, with the arguments of its call.

    Args:
        live: the first rows, which are no pads; exact attention leaves the others out.

    Returns:
        (rows, hidden_size) before the final norm, and the rows of `feature_layers`.
    """
    count, heads, kv_heads, head_dim = len(hidden), decoder.num_heads, decoder.num_kv_heads, decoder.head_dim
    seen = live if exact else count
    wide = torch.float64 if exact else hidden.dtype
    cos, sin = _angles(decoder, hidden, positions, wide)
    mask = additive_mask(visible[:seen], wide, heads // kv_heads)
    rotated = torch.empty((heads + 2 * kv_heads, count, head_dim), dtype=wide, device=hidden.device)
    attended = (hidden.new_empty if seen == count else hidden.new_zeros)((count, heads, head_dim))
    deeper = []
    for number, layer in enumerate(decoder.layers):
        normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.input_norm, layer.input_eps)
        rows = layer.query_key_value(normed).view(count, -1, head_dim)
        torch.addcmul(rows * cos, rows.roll(head_dim // 2, -1), sin, out=rotated.transpose(0, 1))
        keys, values = cache.update_both(rotated[heads:], number)
        queries = rotated[:heads, :seen]
        if exact:
            found = attend_exactly(queries, keys, values, mask, decoder.scaling)
        else:
            found = attend_grouped(queries, keys[None], values[None], mask, decoder.scaling)
        attended[:seen].copy_(found.transpose(0, 1))
        _add_product(hidden, attended.view(count, -1), layer.output)
        normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.middle_norm, layer.middle_eps)
        gate, up = layer.gate_up(normed).tensor_split([layer.inner_size], dim=1)
        _add_product(hidden, functional.silu(gate).mul_(up), layer.down)
        if number + 1 in feature_layers:
            deeper.append(hidden.clone())
    return hidden, deeper


def _angles(decoder, hidden: Tensor, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines for all heads, (rows, heads + 2 · kv_heads, head_dim) each: 1 and 0 for the values."""
    cos, sin = (part[0].to(dtype) for part in decoder.rotary(hidden, positions[None]))
    shape = (len(positions), decoder.num_heads + 2 * decoder.num_kv_heads, decoder.head_dim)
    num_rotated = decoder.num_heads + decoder.num_kv_heads
    all_cos, all_sin = cos.new_ones(shape), cos.new_zeros(shape)
    all_cos[:, :num_rotated] = cos[:, None]
    all_sin[:, :num_rotated] = signed(sin)[:, None]
    return all_cos, all_sin


def _add_product(hidden: Tensor, rows: Tensor, linear) -> None:
    """Adds a linear layer's product to the stream, in place."""
    weight, bias = linear.keywords["weight"], linear.keywords["bias"]
    hidden.addmm_(rows, weight.T)
    if bias is not None:
        hidden.add_(bias)
