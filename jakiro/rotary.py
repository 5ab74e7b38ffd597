"""Rotary position embeddings, applied in three operations."""

import torch
from torch import Tensor, nn


def changes_with_length(rotary: nn.Module) -> bool:
    """Whether a rotary embedding's angles depend on how long the text is by now."""
    return any(kind in str(getattr(rotary, "rope_type", "default")) for kind in ("dynamic", "longrope"))


def signed(sin: Tensor) -> Tensor:
    """sin with the first half of its last dimension negated, as `turn` takes it."""
    first, second = sin.chunk(2, dim=-1)
    return torch.cat([-first, second], dim=-1)


def turn(rows: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """x·cos + rotate_half(x)·sin over the last dimension; rotating half is rolling by half once the sign is in sin."""
    return torch.addcmul(rows * cos, rows.roll(rows.shape[-1] // 2, -1), signed_sin)
