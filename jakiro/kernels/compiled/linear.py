"""Linear layers that the compiled functions multiply by: weights in panels, 16 bits each where that loses nothing.

`CompiledInt8Linear` keeps 8 bits, for drafting.
"""

import ctypes
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from jakiro.kernels.compiled.library import Kind, Matrix, address, library, num_threads
from jakiro.kernels.compiled.pages import in_large_pages
from jakiro.kernels.rounding import rounded_to_8_bits

_LARGEST_HALF = 65504.0
# Numbers of a matrix that are looked at together: too few for torch to wake a second thread
_PART = 2**15


class NativeLinear(nn.Module):
    """Same function as the `nn.Linear` it replaces, each row rounded alike however many run together.

    Sixty matrices of 1536 × 576 take 6.5 ms for one row and 8.3 for eight; 9.6 and 13.3 packed in 16 bits by torch (two
    threads of a Xeon).

    Args:
        weight: (outputs, inputs) float32; bias: (outputs,) or None.
        exponent: the weight times 2 to this power is kept in 16 bits, see `lossless_exponent`; None keeps 32 bits.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, exponent: int | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        short = weight.bfloat16()
        if torch.equal(short.float(), weight):
            kind, packed = (Kind.TILES, _in_tiles(short)) if library().jakiro_tiles() else (Kind.PAIRS, _paired(short))
            self._keep(kind, packed, weight.shape, bias, unscale=1.0)
        elif exponent is None:
            self._keep(Kind.FLOAT32, _in_panels(weight), weight.shape, bias, unscale=1.0)
        else:
            packed = _in_panels((weight * 2.0**exponent).half())
            self._keep(Kind.FLOAT16, packed, weight.shape, bias, unscale=2.0**-exponent)

    def _keep(self, kind: Kind, packed: Tensor, shape: Sequence[int], bias: Tensor | None, **fields) -> None:
        """Describes a packed matrix; `fields` are those of `Matrix` that depend on its kind."""
        self.out_features, self.in_features = shape
        self.packed = in_large_pages(packed)
        self.bias = None if bias is None else bias.detach().float().contiguous()
        self.matrix = Matrix(
            weights=self.packed.data_ptr(),
            bias=address(self.bias),
            outputs=self.out_features,
            inputs=self.in_features,
            kind=kind,
            **fields,
        )

    @property
    def itemsize(self) -> int:
        """Bytes of a weight."""
        return self.packed.element_size()

    def forward(self, hidden: Tensor) -> Tensor:
        if hidden.dtype != torch.float32:
            raise ValueError(f"compiled layers multiply float32; these numbers are {hidden.dtype}")
        rows = hidden.reshape(-1, self.in_features).contiguous()
        count, threads = rows.shape[0], num_threads()
        memory = rows.new_empty(threads * library().jakiro_linear_floats(ctypes.byref(self.matrix), count))
        result = rows.new_empty((count, self.out_features))
        library().jakiro_linear(
            ctypes.byref(self.matrix), rows.data_ptr(), result.data_ptr(), memory.data_ptr(), count, threads
        )
        return result.view(*hidden.shape[:-1], self.out_features)


class CompiledInt8Linear(NativeLinear):
    """About the function of the `nn.Linear` it replaces: 8 bits a weight, one scale for each output. What it reads is
    rounded to at most 16 bits, each row by a scale of its own.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        nn.Module.__init__(self)
        rounded, self.scales, self.factors = rounded_to_8_bits(weight)
        scaling = {"scales": self.scales.data_ptr(), "factors": self.factors.data_ptr()}
        self._keep(Kind.INT8, _in_steps(rounded), weight.shape, bias, **scaling)


def _in_panels(weight: Tensor) -> Tensor:
    """(outputs, inputs) as products.h orders it."""
    panel = library().jakiro_panel()
    padded = nn.functional.pad(weight, (0, 0, 0, -weight.shape[0] % panel))
    return padded.view(-1, panel, weight.shape[1]).transpose(1, 2)


def _paired(weight: Tensor) -> Tensor:
    """(outputs, inputs) bfloat16 as products.h orders it."""
    return _in_panels(weight).unflatten(-1, (2, -1)).transpose(-1, -2)


def _in_steps(weight: Tensor) -> Tensor:
    """(outputs, inputs) as dots.h orders it."""
    panel, (outputs, inputs) = library().jakiro_panel(), weight.shape
    padded = nn.functional.pad(weight, (0, -inputs % (panel // 2), 0, -outputs % panel))
    return padded.view(-1, panel, padded.shape[1] // 2, 2).transpose(1, 2)


def _in_tiles(weight: Tensor) -> Tensor:
    """(outputs, inputs) as tiles.h orders it."""
    outputs, inputs = weight.shape
    padded = nn.functional.pad(weight, (0, -inputs % 32, 0, -outputs % 32))
    halves = padded.view(-1, 2, 16, padded.shape[1] // 32, 16, 2)
    return halves.permute(0, 3, 1, 4, 2, 5)


def lossless_exponent(weight: Tensor) -> int | None:
    """The power of two by which a weight is to be multiplied so that float16 holds it exactly; None where none does."""
    largest = _largest(weight)
    if not math.isfinite(largest):
        return None
    if largest == 0 or _survives_half(weight, 0):
        return 0
    exponent = largest_exponent(weight)
    return exponent if _survives_half(weight, exponent) else None


def largest_exponent(weight: Tensor) -> int:
    """The largest power of two by which a finite weight may be multiplied without leaving float16's range."""
    return math.floor(math.log2(_LARGEST_HALF / max(_largest(weight), 2.0**-60)))


def _largest(weight: Tensor) -> float:
    smallest, largest = weight.aminmax()
    return float(torch.maximum(-smallest, largest))


def _survives_half(weight: Tensor, exponent: int) -> bool:
    """Looks at one row, which mostly settles it, and then at parts that stay in the processor's cache."""
    parts = (weight[:1], *weight.split(max(_PART // weight.shape[1], 1)))
    scaled = (part * 2.0**exponent for part in parts)
    return all(torch.equal(part.half().float(), part) for part in scaled)
