"""Linear layers with 8-bit weights, for drafting on a CPU.

A guess need not be exact: the target checks every one, so rounding the draft head's weights changes how often a guess
holds, by about a hundredth, and never the text. What it buys is memory traffic, the whole cost of a pass over few rows:
a quarter of float32's bytes (eight rows of 16,384 outputs: 0.35 ms, in 16 bits 0.80, in 32 1.22). Weights get one scale
per output row; up to 32 rows of a pass share one. Where a few columns read far larger numbers than the others, the
layer is `balanced`.
"""

import warnings

import torch
from torch import Tensor, nn

from jakiro.kernels.linear import trial_error
from jakiro.kernels.rounding import balanced

_ALLOWED_ERROR = 0.05
_ROWS = 32


class QuantizedLinear(nn.Module):
    """About the function of the `nn.Linear` it replaces; input and output keep their dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        weight = weight.detach().float()
        even, factors = balanced(weight)
        # Columns of about one size stay as they are: multiplying the input takes 5 µs
        self._factors = factors if factors.amax() > 2 * factors.amin() else None
        weight = weight if self._factors is None else even
        scales = (weight.abs().amax(dim=1) / 127).clamp_min(1e-12).double()
        zeros = torch.zeros(len(scales), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach().float())
        # Without these instructions pairs of 8-bit products are added in 16 bits, where 8-bit inputs would overflow
        self._seven_bits = not getattr(torch.cpu, "get_capabilities", dict)().get("avx512_vnni", False)

    def forward(self, hidden: Tensor) -> Tensor:
        if hidden.numel() <= _ROWS * self.in_features:
            even = hidden.float() if self._factors is None else hidden.float() * self._factors
            return torch.ops.quantized.linear_dynamic(even, self.packed, self._seven_bits).to(hidden.dtype)
        # A prompt's first position has far larger features than all others; few rows share its scale
        parts = [self(few) for few in hidden.reshape(-1, self.in_features).split(_ROWS)]
        return torch.cat(parts).view(*hidden.shape[:-1], self.out_features)


def quantizing_works(device: torch.device) -> bool:
    """Whether this build of torch multiplies 8-bit matrices on this device, tried on a small one."""
    return device.type == "cpu" and trial_error(QuantizedLinear) <= _ALLOWED_ERROR
