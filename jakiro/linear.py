"""Linear layers with weights packed for oneDNN, for float32 passes of few rows on a CPU.

The stock layer hands a row-major matrix to a general matrix product, which is slow for 2 to 64 rows and whose rounding
depends on the number of rows. Packed once at load, the same weights are read at memory speed and each row is computed
alike however many rows run together. Where one row alone would add its products up in another order (long rows, which
oneDNN cuts into blocks), it runs beside a copy of itself; reading the weights takes as long for both.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

_TYPICAL_ROWS = 8


class PackedLinear(nn.Module):
    """Same function as the `nn.Linear` it replaces; the weight lives in oneDNN's blocked layout only."""

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


def packing_works(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch packs weights for this device and dtype, tried on a small matrix."""
    if device.type != "cpu" or dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    weight = torch.linspace(-1, 1, 48 * 32).view(48, 32)
    hidden = torch.linspace(-1, 1, 4 * 32).view(4, 32)
    try:
        packed = PackedLinear(weight, None)(hidden)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return torch.allclose(packed, hidden @ weight.T, atol=1e-4)


def pack_linears(module: nn.Module, layer: Callable[[Tensor, Tensor | None], nn.Module] = PackedLinear) -> int:
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
