"""Linear layers with weights packed for oneDNN, for float32 passes of few rows on a CPU.

The stock layer hands a row-major matrix to a general matrix product, which is slow for 2 to 64 rows and whose rounding
depends on the number of rows. Packed once at load, the same weights are read at memory speed and each row is computed
alike however many rows run together.
"""

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

    def forward(self, hidden: Tensor) -> Tensor:
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


def pack_linears(module: nn.Module) -> int:
    """Replaces every `nn.Linear` below `module` by a packed one, in place; returns how many."""
    count = 0
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child.weight, child.bias))
            count += 1
        else:
            count += pack_linears(child)
    return count
