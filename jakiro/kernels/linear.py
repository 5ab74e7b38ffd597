"""Linear layers with packed weights, for float32 passes of few rows on a CPU.

Compiled functions multiply by them where there are any (`jakiro.kernels.compiled`); the layers here are for all other
machines.
The stock layer hands a row-major matrix to a general matrix product, which is slow for 2 to 64 rows and whose rounding
depends on the number of rows. Packed once at load, the same weights are read at memory speed and each row is computed
alike however many rows run together. Weights that 16 bits hold without loss, as those of nearly all checkpoints, are
kept in 16 bits: half the bytes a pass has to read, and the same float32 products of the same numbers.
"""

import functools
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from jakiro.kernels.compiled.library import library
from jakiro.kernels.compiled.linear import NativeLinear, lossless_exponent

_TYPICAL_ROWS = 8


class HalfPackedLinear(nn.Module):
    """Same function as the `nn.Linear` it replaces; the weight lives in 16 bits, products and sums in float32.

    Args:
        exponent: the weight times 2 to this power is what 16 bits hold without loss, see `lossless_exponent`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, exponent: int = 0) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        scale = 2.0**exponent
        weight = weight.detach().float() * scale
        bias = None if bias is None else bias.detach().float() * scale
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
        self._unscale = None if exponent == 0 else 1 / scale

    @property
    def itemsize(self) -> int:
        """Bytes of a weight."""
        return 2

    def forward(self, hidden: Tensor) -> Tensor:
        product = torch.ops.quantized.linear_dynamic_fp16(hidden, self.packed)
        return product if self._unscale is None else product.mul_(self._unscale)


class PackedLinear(nn.Module):
    """Same function as the `nn.Linear` it replaces; the weight lives in oneDNN's blocked layout only.

    Where one row alone would add its products up in another order (long rows, which oneDNN cuts into blocks), it runs
    beside a copy of itself; reading the weights takes as long for both.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _TYPICAL_ROWS)
        self.bias = None if bias is None else bias.detach()
        self._doubles_one_row = not self._one_row_rounds_like_two()

    def forward(self, hidden: Tensor) -> Tensor:
        if self._doubles_one_row and hidden.numel() == self.in_features:
            row = hidden.reshape(1, self.in_features)
            return self._product(torch.cat((row, row)))[:1].view(*hidden.shape[:-1], self.out_features)
        return self._product(hidden)

    def _one_row_rounds_like_two(self) -> bool:
        rows = torch.randn((2, self.in_features), generator=torch.Generator().manual_seed(0))
        return torch.equal(self._product(rows[:1]), self._product(rows)[:1])

    def _product(self, hidden: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(hidden, self.packed, self.bias, "none", [], "")


def packed_linear(weight: Tensor, bias: Tensor | None) -> nn.Module:
    """The fastest packed layer that changes no weight; both are float32."""
    exponent = lossless_exponent(weight.detach())
    if native_works():
        return NativeLinear(weight, bias, exponent)
    if exponent is not None and _half_works():
        return HalfPackedLinear(weight, bias, exponent)
    return PackedLinear(weight, bias)


def packing_works(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch packs weights for this device and dtype, tried on a small matrix."""
    if device.type != "cpu" or dtype != torch.float32:
        return False
    return native_works() or (torch.backends.mkldnn.is_available() and _works(PackedLinear))


@functools.cache
def native_works() -> bool:
    """Whether there are compiled functions, and they multiply as they should."""
    return library() is not None and all(_works(partial(NativeLinear, exponent=each)) for each in (0, None))


@functools.cache
def _half_works() -> bool:
    return _works(HalfPackedLinear)


def _works(layer: Callable[[Tensor, Tensor | None], nn.Module]) -> bool:
    found = trial(layer)
    return found is not None and torch.allclose(*found, atol=1e-4)


def trial(layer: Callable[[Tensor, Tensor | None], nn.Module]) -> tuple[Tensor, Tensor] | None:
    """What a packed layer gives over a small matrix, and what it should; None where torch has no kernel for it."""
    weight = torch.linspace(-1, 1, 48 * 32).view(48, 32).half().float()
    hidden = torch.linspace(-1, 1, 4 * 32).view(4, 32)
    try:
        return layer(weight, None)(hidden), hidden @ weight.T
    except (RuntimeError, AttributeError, NotImplementedError):
        return None


def packed_itemsize(module: nn.Module, dtype: torch.dtype) -> int:
    """Bytes of a weight as passes read it: those of the smallest packed one below a module, else its dtype's."""
    kinds = (HalfPackedLinear, NativeLinear)
    return min((each.itemsize for each in module.modules() if isinstance(each, kinds)), default=dtype.itemsize)


def pack_linears(module: nn.Module, layer: Callable[[Tensor, Tensor | None], nn.Module] = packed_linear) -> int:
    """Replaces every `nn.Linear` below `module` by a packed one, in place; returns how many.

    Args:
        layer: makes the new layer from weight and bias.
    """
    count = 0
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, layer(child.weight, child.bias))
            count += 1
        else:
            count += pack_linears(child, layer)
    return count
