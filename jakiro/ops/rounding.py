"""Weights in 8 bits: columns brought to one size, then one scale for each row; or one for every 32 inputs of a row."""

import torch
from torch import Tensor

# At once: copies of a whole vocabulary would leave the processor's cache, and be a model's highest memory
_ROWS = 512


def column_factors(weight: Tensor) -> Tensor:
    """What moves the sizes of a matrix' columns into what it reads (SmoothQuant, arXiv 2211.10438, with weights alone).

    A head trained in whitened coordinates has small weights where its input is large. Once the columns are of one size,
    the input's numbers are as large as what they contribute, and rounding them loses a tenth as much.

    Args:
        weight: (outputs, inputs).

    Returns:
        (inputs,) powers of two, so that moving them rounds nothing; columns over them have a root mean square near one
        over rows that are not zero.
    """
    num_rows = (weight != 0).any(1).sum().clamp_min(1)
    squares = sum(rows.double().square().sum(0) for rows in weight.split(_ROWS))
    sizes = (squares / num_rows).sqrt()
    return torch.where(sizes > 0, sizes, 1.0).log2().round().exp2().to(weight.dtype)


def rounded_to_8_bits(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix as int8 numbers, (outputs,) float32 scales and (inputs,) float32 factors, whose product it is about."""
    weight = weight.detach().float()
    factors, numbers, scales = column_factors(weight), [], []
    for rows in weight.split(_ROWS):
        even = rows / factors
        scales.append((even.abs().amax(dim=1) / 127).clamp_min(1e-12))
        numbers.append((even / scales[-1][:, None]).round().to(torch.int8))
    return torch.cat(numbers), torch.cat(scales), factors


def rounded_to_blocks(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix by the rule of GGUF's Q8_0; what was rounded once stays as it is.

    Args:
        weight: (outputs, inputs).

    Returns:
        (outputs, blocks, 1) float16 scales and (outputs, blocks, 32) int8 numbers, zeros after the last input.
    """
    found = [_rounded_rows(rows) for rows in weight.detach().split(_ROWS)]
    return torch.cat([scales for scales, _ in found]), torch.cat([numbers for _, numbers in found])


def _rounded_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    outputs, inputs = weight.shape
    blocks = torch.nn.functional.pad(weight.float(), (0, -inputs % 32)).view(outputs, -1, 32)
    scales = (blocks.abs().amax(-1, keepdim=True) / 127).half()
    return scales, (blocks * (1 / scales.float()).nan_to_num(posinf=0)).round().to(torch.int8)
