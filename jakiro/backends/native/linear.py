"""Linear layers for the compiled functions: weights in panels, in the smallest dtype without loss.

`BlockLinear` stores the numbers of a quantized file, widened to 8 bits, with the file's scales and minima;
`CompiledInt8Linear` rounds weights for drafting.
"""

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from jakiro.backends.native.library import Kind, Matrix, address, library, num_threads
from jakiro.backends.native.pages import in_large_pages, large_pages
from jakiro.ops.blocks import BLOCKS, StoredBlocks
from jakiro.ops.rounding import rounded_to_8_bits, rounded_to_blocks


class NativeLinear(nn.Module):
    """The function of an `nn.Linear`; the result of a row does not depend on the number of rows.

    Sixty matrices of 1536 × 576 take 6.5 ms for one row and 8.3 for eight; 9.6 and 13.3 packed in 16 bits by torch (two
    threads of a Xeon).

    Args:
        weight: (outputs, inputs) float32; stored in 16 bits if bfloat16 represents it exactly.
        bias: (outputs,) or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        short = weight.bfloat16()
        if torch.equal(short.float(), weight):
            self._keep(Kind.PAIRS, in_large_pages(_paired(short)), weight.shape, bias)
        else:
            self._keep(Kind.FLOAT32, in_large_pages(_in_panels(weight)), weight.shape, bias)

    def _keep(self, kind: Kind, packed: Tensor, shape: Sequence[int], bias: Tensor | None, **fields) -> None:
        """Store a packed matrix and its description; `fields` are the fields of `Matrix` that depend on its kind."""
        self.out_features, self.in_features = shape
        self.packed = packed
        self.bias = None if bias is None else bias.detach().float().contiguous()
        self.matrix = Matrix(address(packed), address(self.bias), *shape, kind, **fields)

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
        library().jakiro_linear(ctypes.byref(self.matrix), rows, result, memory, count, threads)
        return result.view(*hidden.shape[:-1], self.out_features)


class BlockLinear(NativeLinear):
    """Products with quantized matrices and their own scales; inputs are rounded to 16 bits, see `dots.h`.

    Args:
        parts: Matrices with concatenated outputs; their types may differ.
        inputs: Number of inputs of each part.
        bias: (outputs,) or None.

    Raises:
        ValueError: a scale is infinite or NaN.
    """

    def __init__(self, parts: Sequence[StoredBlocks], inputs: int, bias: Tensor | None = None) -> None:
        nn.Module.__init__(self)
        outputs, panel = sum(len(part.rows) for part in parts), library().jakiro_panel()
        block = min(BLOCKS[part.kind].size for part in parts)
        minima = any(BLOCKS[part.kind].has_minima for part in parts)
        # Stored scales are float16; scales of K-types are products of two numbers
        scale_bytes = 2 if all(BLOCKS[part.kind].stored_size == 32 for part in parts) else 4
        shape = (-(-outputs // panel), -(-inputs // block), panel * (scale_bytes * (1 + minima) + block))
        packed = large_pages(int(np.prod(shape))).view(shape)
        blocks = {"block": block, "blocks": shape[1], "minima": minima, "scale_bytes": scale_bytes}
        self._keep(Kind.BLOCKS, packed, (outputs, inputs), bias, **blocks)
        first = 0
        for kind, rows, order in parts:
            order_address = None if order is None else np.ascontiguousarray(order).ctypes.data
            about = (BLOCKS[kind].type_id, rows.ctypes.data, order_address, *rows.shape)
            if library().jakiro_unpack(ctypes.byref(self.matrix), first, *about):
                raise ValueError("its scales are not all finite")
            first += len(rows)

    @classmethod
    def rounded(cls, weight: Tensor, bias: Tensor | None) -> "BlockLinear":
        """Return the layer of (outputs, inputs) float32 weights, rounded by Q8_0's rule; the last block is padded."""
        scales, numbers = rounded_to_blocks(weight)
        stored = torch.cat([scales.view(torch.uint8), numbers.view(torch.uint8)], dim=-1).flatten(1)
        return cls([StoredBlocks("Q8_0", stored.numpy())], weight.shape[1], bias)

    device, dtype = torch.device("cpu"), torch.float32

    @property
    def shape(self) -> tuple[int, int]:
        return self.out_features, self.in_features

    @property
    def itemsize(self) -> int:
        """Bytes of a weight without its scales."""
        return 1

    def rows(self, ids: Tensor) -> Tensor:
        """Return the dequantized rows of (…,) int64 indices, (…, inputs) float32."""
        ids = ids.contiguous()
        result = torch.empty((*ids.shape, self.in_features))
        library().jakiro_rows(ctypes.byref(self.matrix), ids, ids.numel(), result)
        return result


class CompiledInt8Linear(NativeLinear):
    """An approximation of an `nn.Linear`: 8-bit weights with one scale per output, inputs of at most 16 bits with one
    scale per row.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        nn.Module.__init__(self)
        rounded, scales, self.factors = rounded_to_8_bits(weight)
        panel, (outputs, inputs) = library().jakiro_panel(), weight.shape
        padded = nn.functional.pad(rounded, (0, -inputs % (panel // 2), 0, -outputs % panel))
        numbers = padded.view(-1, panel, padded.shape[1] // 2, 2).transpose(1, 2).flatten(1)
        scales = nn.functional.pad(scales, (0, -outputs % panel)).view(-1, panel).view(torch.int8)
        blocks = {"block": padded.shape[1], "blocks": 1, "scale_bytes": 4, "factors": address(self.factors)}
        self._keep(Kind.BLOCKS, in_large_pages(torch.cat([scales, numbers], dim=1)), weight.shape, bias, **blocks)


def _in_panels(weight: Tensor) -> Tensor:
    """Return an (outputs, inputs) matrix in the order of products.h."""
    panel = library().jakiro_panel()
    padded = nn.functional.pad(weight, (0, 0, 0, -weight.shape[0] % panel))
    return padded.view(-1, panel, weight.shape[1]).transpose(1, 2)


def _paired(weight: Tensor) -> Tensor:
    """Return an (outputs, inputs) bfloat16 matrix in the order of products.h."""
    return _in_panels(weight).unflatten(-1, (2, -1)).transpose(-1, -2)
