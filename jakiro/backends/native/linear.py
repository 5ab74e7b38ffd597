"""Linear layers that the compiled functions multiply by: weights in panels, in the fewest bits that lose nothing.

`BlockLinear` keeps 8 bits and scales, as quantized files hold them; `CompiledInt8Linear` rounds for drafting.
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
    """Same function as the `nn.Linear` it replaces, each row rounded alike however many run together.

    Sixty matrices of 1536 × 576 take 6.5 ms for one row and 8.3 for eight; 9.6 and 13.3 packed in 16 bits by torch (two
    threads of a Xeon).

    Args:
        weight: (outputs, inputs) float32, kept in 16 bits where bfloat16 holds it; bias: (outputs,) or None.
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
        """Describes a packed matrix; `fields` are those of `Matrix` that depend on its kind."""
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
    """The products of quantized matrices, with their own scales; what they read is rounded to 16 bits, see `dots.h`.

    Args:
        parts: whose outputs stand one after another; types may differ.
        inputs: of each.

    Raises:
        ValueError: a scale is infinite or no number.
    """

    def __init__(self, parts: Sequence[StoredBlocks], inputs: int, bias: Tensor | None = None) -> None:
        nn.Module.__init__(self)
        outputs, panel = sum(len(part.rows) for part in parts), library().jakiro_panel()
        block = min(BLOCKS[part.kind].size for part in parts)
        minima = any(BLOCKS[part.kind].has_minima for part in parts)
        # Stored scales are float16, those of K-types products of two numbers
        scale_bytes = 2 if all(BLOCKS[part.kind].stored_size == 32 for part in parts) else 4
        shape = (-(-outputs // panel), -(-inputs // block), panel * (scale_bytes * (1 + minima) + block))
        packed = large_pages(int(np.prod(shape))).view(shape)
        blocks = {"block": block, "blocks": shape[1], "minima": minima, "scale_bytes": scale_bytes}
        self._keep(Kind.BLOCKS, packed, (outputs, inputs), bias, **blocks)
        first = 0
        for kind, rows, order in parts:
            places = None if order is None else np.ascontiguousarray(order).ctypes.data
            about = (BLOCKS[kind].type_id, rows.ctypes.data, places, *rows.shape)
            if library().jakiro_unpack(ctypes.byref(self.matrix), first, *about):
                raise ValueError("it holds scales that are no finite numbers")
            first += len(rows)

    @classmethod
    def rounded(cls, weight: Tensor, bias: Tensor | None) -> "BlockLinear":
        """Of (outputs, inputs) float32 rounded by Q8_0's rule, the rest of whose last block is zeros."""
        scales, numbers = rounded_to_blocks(weight)
        stored = torch.cat([scales.view(torch.uint8), numbers.view(torch.uint8)], dim=-1).flatten(1)
        return cls([StoredBlocks("Q8_0", stored.numpy())], weight.shape[1], bias)

    device, dtype = torch.device("cpu"), torch.float32

    @property
    def shape(self) -> tuple[int, int]:
        return self.out_features, self.in_features

    @property
    def itemsize(self) -> int:
        """Bytes of a weight beside its scales."""
        return 1

    def rows(self, ids: Tensor) -> Tensor:
        """(…,) int64 numbers of rows → (…, inputs) float32, what their weights stand for."""
        ids = ids.contiguous()
        found = torch.empty((*ids.shape, self.in_features))
        library().jakiro_rows(ctypes.byref(self.matrix), ids, ids.numel(), found)
        return found


class CompiledInt8Linear(NativeLinear):
    """About the function of the `nn.Linear` it replaces: 8 bits a weight, one scale for each output. What it reads is
    rounded to at most 16 bits, each row by a scale of its own.
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
    """(outputs, inputs) as products.h orders it."""
    panel = library().jakiro_panel()
    padded = nn.functional.pad(weight, (0, 0, 0, -weight.shape[0] % panel))
    return padded.view(-1, panel, weight.shape[1]).transpose(1, 2)


def _paired(weight: Tensor) -> Tensor:
    """(outputs, inputs) bfloat16 as products.h orders it."""
    return _in_panels(weight).unflatten(-1, (2, -1)).transpose(-1, -2)
