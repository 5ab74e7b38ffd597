"""Linear layers that the compiled functions multiply by: weights in panels, 16 bits each where that loses nothing.

`RoundedNativeLinear` keeps 8 bits, for drafting.
"""

import ctypes
import math

import torch
from torch import Tensor, nn

from jakiro.kernels.compiled.library import Matrix, address, library, num_threads
from jakiro.kernels.rounding import rounded_to_8_bits

_LARGEST_HALF = 65504.0


class NativeLinear(nn.Module):
    """Same function as the `nn.Linear` it replaces, each row rounded alike however many run together.

    Args:
        weight: (outputs, inputs) float32; bias: (outputs,) or None.
        exponent: the weight times 2 to this power is kept in 16 bits, see `lossless_exponent`; None keeps 32 bits.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, exponent: int | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        kept = weight if exponent is None else (weight * 2.0**exponent).half()
        self._pack(kept, bias, unscale=2.0 ** -(exponent or 0))

    def _pack(self, weight: Tensor, bias: Tensor | None, **fields) -> None:
        """Puts the numbers of a matrix into panels; `fields` are those of `Matrix` that depend on what they are."""
        self.out_features, self.in_features = weight.shape
        panel = library().jakiro_panel()
        padded = nn.functional.pad(weight, (0, 0, 0, -self.out_features % panel))
        self.packed = padded.view(-1, panel, self.in_features).transpose(1, 2).contiguous()
        self.bias = None if bias is None else bias.detach().float().contiguous()
        self.matrix = Matrix(
            weights=self.packed.data_ptr(),
            bias=address(self.bias),
            outputs=self.out_features,
            inputs=self.in_features,
            itemsize=self.itemsize,
            **fields,
        )

    @property
    def itemsize(self) -> int:
        """Bytes of a weight."""
        return self.packed.element_size()

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.reshape(-1, self.in_features).contiguous()
        result = rows.new_empty((rows.shape[0], self.out_features))
        library().jakiro_linear(
            ctypes.byref(self.matrix), rows.data_ptr(), result.data_ptr(), rows.shape[0], num_threads()
        )
        return result.view(*hidden.shape[:-1], self.out_features)


class RoundedNativeLinear(NativeLinear):
    """About the function of the `nn.Linear` it replaces: 8 bits a weight, one scale for each output."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        nn.Module.__init__(self)
        rounded, self.scales, self.factors = rounded_to_8_bits(weight)
        self._pack(rounded, bias, scales=self.scales.data_ptr(), factors=self.factors.data_ptr())


def lossless_exponent(weight: Tensor) -> int | None:
    """The power of two by which a weight is to be multiplied so that float16 holds it exactly; None where none does."""
    largest = float(weight.abs().amax())
    if not math.isfinite(largest):
        return None
    if largest == 0 or _survives_half(weight):
        return 0
    exponent = largest_exponent(weight)
    return exponent if _survives_half(weight * 2.0**exponent) else None


def largest_exponent(weight: Tensor) -> int:
    """The largest power of two by which a finite weight may be multiplied without leaving float16's range."""
    return math.floor(math.log2(_LARGEST_HALF / float(weight.abs().amax().clamp_min(2.0**-60))))


def _survives_half(weight: Tensor) -> bool:
    return torch.equal(weight.half().float(), weight)
