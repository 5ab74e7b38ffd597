"""Large matrices of a head in 8 bits, for smaller files: a scale for each row, a power of two for each column.

The columns are brought to one size before they are rounded, see `jakiro.ops.rounding`; a guess need not be exact,
the target checks every one. The input projection stays in 16 bits, so that training can go on from it.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from jakiro.ops.rounding import rounded_to_8_bits

_SCALES, _EXPONENTS = ".scales", ".exponents"
_SMALLEST = 4096
_KEPT = ("fc.",)


def rounded_to_int8(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, large matrices as int8 with float32 scales of their rows and int8 exponents of their columns."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() != 2 or tensor.numel() < _SMALLEST or name.startswith(_KEPT):
            found[name] = tensor
            continue
        found[name], found[name + _SCALES], factors = rounded_to_8_bits(tensor)
        found[name + _EXPONENTS] = factors.log2().to(torch.int8)
    return found


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with every rounded matrix in float32 again.

    Raises:
        ValueError: an 8-bit matrix lacks its scales or exponents, or they don't belong to it.
    """
    found = {name: tensor for name, tensor in tensors.items() if not name.endswith((_SCALES, _EXPONENTS))}
    for name, tensor in found.items():
        if tensor.dtype != torch.int8:
            continue
        scales, exponents = tensors.get(name + _SCALES), tensors.get(name + _EXPONENTS)
        shapes = tuple(None if each is None else tuple(each.shape) for each in (scales, exponents))
        if shapes != tuple((size,) for size in tensor.shape):
            raise ValueError(
                f"The draft head's 8-bit matrix {name} needs {tensor.shape[0]} scales and {tensor.shape[1]} exponents; "
                "download or train it again."
            )
        found[name] = tensor.float() * scales.float()[:, None] * exponents.float().exp2()
    return found
