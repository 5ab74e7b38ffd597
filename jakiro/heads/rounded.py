"""Large matrices of a head in 8 bits, for smaller files: a scale for each row, a power of two for each column.

Columns are scaled to a common size before rounding, see `jakiro.ops.rounding`. Rounded weights change only the
candidates, which the target verifies. The input projection stays in 16 bits, so that training can continue from it.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from jakiro.ops.rounding import rounded_to_8_bits

_SCALES, _EXPONENTS = ".scales", ".exponents"
_SMALLEST = 4096
_KEPT = ("fc.",)


def rounded_to_int8(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with large matrices as int8, float32 scales of their rows and int8 exponents of columns."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() != 2 or tensor.numel() < _SMALLEST or name.startswith(_KEPT):
            result[name] = tensor
            continue
        result[name], result[name + _SCALES], factors = rounded_to_8_bits(tensor)
        result[name + _EXPONENTS] = factors.log2().to(torch.int8)
    return result


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with every rounded matrix converted back to float32.

    Raises:
        ValueError: scales or exponents of an 8-bit matrix are missing or have another size.
    """
    result = {name: tensor for name, tensor in tensors.items() if not name.endswith((_SCALES, _EXPONENTS))}
    for name, tensor in result.items():
        if tensor.dtype != torch.int8:
            continue
        scales, exponents = tensors.get(name + _SCALES), tensors.get(name + _EXPONENTS)
        shapes = tuple(None if part is None else tuple(part.shape) for part in (scales, exponents))
        if shapes != tuple((size,) for size in tensor.shape):
            raise ValueError(
                f"The draft head's 8-bit matrix {name} needs {tensor.shape[0]} scales and {tensor.shape[1]} exponents; "
                "download or train it again."
            )
        result[name] = tensor.float() * scales.float()[:, None] * exponents.float().exp2()
    return result
