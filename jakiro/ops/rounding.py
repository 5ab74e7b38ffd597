"""Weights in 8 bits: scaled columns and one scale for each row, or one scale for every 32 inputs of a row."""

import torch
from torch import Tensor

# Rows converted at once: copies of a whole vocabulary exceed the processor's cache and would be the memory peak
_ROWS = 512


def column_factors(weight: Tensor) -> Tensor:
    """Return factors that move the sizes of a matrix' columns to its inputs (SmoothQuant, arXiv 2211.10438).

    Only the weights are used. A head trained in whitened coordinates has small weights for large inputs. After scaling,
    an input is as large as its contribution, and rounding the inputs loses a tenth as much.

    Args:
        weight: (outputs, inputs).

    Returns:
        (inputs,) powers of two, which cause no rounding. Columns divided by them have a root mean square near one over
        rows that are not zero.
    """
    num_rows = (weight != 0).any(1).sum().clamp_min(1)
    squares = sum(rows.double().square().sum(0) for rows in weight.split(_ROWS))
    sizes = (squares / num_rows).sqrt()
    return torch.where(sizes > 0, sizes, 1.0).log2().round().exp2().to(weight.dtype)


def rounded_to_8_bits(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Approximate a matrix by the product of int8 numbers, (outputs,) float32 scales and (inputs,) float32 factors."""
    weight = weight.detach().float()
    factors, numbers, scales = column_factors(weight), [], []
    for rows in weight.split(_ROWS):
        even = rows / factors
        scales.append((even.abs().amax(dim=1) / 127).clamp_min(1e-12))
        numbers.append((even / scales[-1][:, None]).round().to(torch.int8))
    return torch.cat(numbers), torch.cat(scales), factors


def rounded_to_blocks(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix by the rule of GGUF's Q8_0; rounding it again changes nothing.

    Args:
        weight: (outputs, inputs).

    Returns:
        (outputs, blocks, 1) float16 scales and (outputs, blocks, 32) int8 numbers, zeros after the last input.
    """
    scales, numbers = [], []
    for rows in weight.detach().split(_ROWS):
        blocks = torch.nn.functional.pad(rows.float(), (0, -rows.shape[1] % 32)).unflatten(1, (-1, 32))
        scales.append((blocks.abs().amax(-1, keepdim=True) / 127).half())
        numbers.append((blocks * (1 / scales[-1].float()).nan_to_num(posinf=0)).round().to(torch.int8))
    return torch.cat(scales), torch.cat(numbers)
