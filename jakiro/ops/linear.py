"""Linear layers with packed weights, for float32 passes over few rows on a CPU.

Registered kernels (`jakiro.ops.kernels`) replace these layers. Without kernels, one row times sixty matrices of
1536 × 576 takes 8.0 ms, with `nn.Linear` 15.1 (Zen 3). The stock layer passes a row-major matrix to a general matrix
product, which is slow for 2 to 64 rows and rounds differently for different numbers of rows. Weights that are packed
once at load are read at memory speed, and the result of a row does not depend on the number of rows: torch's kernels
differ between processors, so they run only with numbers of rows that gave equal results on this one.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from jakiro.ops import kernels
from jakiro.ops.blocks import StoredBlocks
from jakiro.ops.kernels import Kernels, Packing
from jakiro.ops.rounding import rounded_to_blocks

_TYPICAL_ROWS = 8
# Largest number of rows that is tried, and rows of the largest tree; only prompts have more rows
_TRIED_ROWS, _TREE_ROWS = 64, 256
# Number of weights up to which all outputs of a matrix are tried, and smallest number of results compared per row: a
# single result may have the same bits by chance
_TRIED_WEIGHTS, _TRIED_RESULTS = 2**20, 64


class PackedLinear(nn.Module):
    """The function of an `nn.Linear`, computed by oneDNN's packed kernel."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = None if bias is None else bias.detach()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _TYPICAL_ROWS)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(hidden, self.packed, self.bias, "none", [], "")


class BatchInvariantLinear(nn.Module):
    """A packed layer that computes each row independently of the number of rows.

    Torch's kernels have special cases, for one row or for the last rows of many, that sum the same products in another
    order. Therefore rows are padded with zeros to a number without such a case, and a large tree is computed in parts.
    Prompts are not padded, because all methods read the same prompt.

    Args:
        layer: The layer.
        counts: Ascending numbers of rows with equal results, see `alike_counts`.
    """

    def __init__(self, layer: "nn.Module | StockLinear", counts: Sequence[int]) -> None:
        super().__init__()
        self.layer, self._most = layer, counts[-1]
        self.out_features, self.in_features = layer.out_features, layer.in_features
        self._rows = _padded_rows(tuple(counts))

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.reshape(-1, self.in_features)
        if len(rows) <= self._most:
            product = self._few(rows)
        elif len(rows) <= _TREE_ROWS:
            product = torch.cat([self._few(part) for part in rows.split(self._most)])
        else:
            product = self.layer(rows)
        return product.view(*hidden.shape[:-1], self.out_features)

    def _few(self, rows: Tensor) -> Tensor:
        added = self._rows[len(rows)] - len(rows)
        return self.layer(nn.functional.pad(rows, (0, 0, 0, added)))[: len(rows)] if added else self.layer(rows)


@functools.cache
def _padded_rows(counts: tuple[int, ...]) -> list[int]:
    """Return the padded number of rows for each number of rows."""
    return [next(count for count in (0, *counts) if count >= rows) for rows in range(counts[-1] + 1)]


def packed_linear(weight: Tensor, bias: Tensor | None) -> nn.Module:
    """Return the fastest packed layer without loss.

    With float32 weights its results do not depend on the number of rows; with bfloat16 weights they may.
    """
    if weight.dtype == torch.bfloat16:
        return PackedLinear(weight, bias)
    linear = linear_kernels().linear
    if linear is not None:
        return linear(weight, bias)
    return BatchInvariantLinear(PackedLinear(weight, bias), alike_counts(PackedLinear, *weight.shape, bias is not None))


def alike_counts(layer: Packing, out_features: int, in_features: int, bias: bool = False) -> tuple[int, ...]:
    """Return the numbers of rows for which a packed layer of this shape gives equal results on this processor.

    For every number up to `_TRIED_ROWS`, a pass over as many copies of one row is tried. If all copies have the same
    bits, the number joins the group with these bits; the largest group is returned, ascending. With other numbers, the
    kernel treats some rows as a special case. Each shape and number of threads is tried once, with random weights, in
    some tens of milliseconds.
    """
    if out_features * in_features > _TRIED_WEIGHTS:
        # Keep the number of outputs that remain after whole blocks of a kernel
        out_features = max(_TRIED_WEIGHTS // in_features // 64, 1) * 64 + out_features % 64
    return _tried_counts(layer, out_features, in_features, bias, torch.get_num_threads())


@functools.cache
@torch.inference_mode()
def _tried_counts(layer: Packing, out_features: int, in_features: int, bias: bool, num_threads: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((out_features, in_features), generator=generator).bfloat16().float()
    packed = layer(weight, weight[:, 0].clone() if bias else None)
    rows = torch.randn((-(-_TRIED_RESULTS // out_features), 1, in_features), generator=generator)
    groups: list[tuple[Tensor, list[int]]] = []
    for count in range(1, _TRIED_ROWS + 1):
        results = torch.cat([packed(row.repeat(count, 1)) for row in rows], dim=1)
        if not torch.equal(results, results[:1].expand_as(results)):
            continue
        group = next((counts for bits, counts in groups if torch.equal(bits, results[0])), None)
        if group is None:
            groups.append((results[0], [count]))
        else:
            group.append(count)
    return tuple(max((counts for _, counts in groups), key=len))


class StockLinear:
    """The stock product with a matrix, as a layer for `BatchInvariantLinear` and `alike_counts`."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.out_features, self.in_features = weight.shape

    def __call__(self, rows: Tensor) -> Tensor:
        return nn.functional.linear(rows, self.weight, self.bias)


class RowInvariantLinears(TorchFunctionMode):
    """While this mode is active, every `nn.functional.linear` computes each row independently of the number of rows.

    For layers that cannot be packed, because accelerate loads their weights for each call.
    """

    def __torch_function__(
        self, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = None
    ) -> object:
        if func is nn.functional.linear:
            return self._product(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    @staticmethod
    def _product(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        counts = alike_counts(StockLinear, *weight.shape, bias is not None)
        return BatchInvariantLinear(StockLinear(weight, bias), counts)(hidden)


class RowTable(Protocol):
    """A stored matrix for row lookups by index, such as `jakiro.backends.native.linear.BlockLinear`."""

    shape: tuple[int, int]
    device: torch.device
    dtype: torch.dtype

    def rows(self, ids: Tensor) -> Tensor:
        """Return the rows of (…,) int64 ids as (…, width) float32."""


def looked_up(table: Tensor | RowTable, ids: Tensor) -> Tensor:
    """Return the rows of an embedding or an output function: (…,) int64 indices → (…, width)."""
    return nn.functional.embedding(ids, table) if isinstance(table, Tensor) else table.rows(ids)


def packing_works(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether weights can be packed for this device and dtype, tried on a small matrix."""
    if device.type != "cpu" or dtype != torch.float32:
        return False
    return native_works() or (torch.backends.mkldnn.is_available() and _works(PackedLinear))


def packs_bfloat16(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether bfloat16 matrices can be packed for many rows: if the processor multiplies them in hardware."""
    is_wanted = device.type == "cpu" and dtype == torch.bfloat16 and torch.backends.mkldnn.is_available()
    return is_wanted and torch.ops.mkldnn._is_mkldnn_bf16_supported()


@functools.cache
def native_works() -> bool:
    """Return whether kernels are registered and their products are right."""
    registered = kernels.current()
    return registered is not kernels.TORCH and _works(registered.linear) and _blocks_work(registered)


def linear_kernels() -> Kernels:
    """Return the registered kernels if their products are right on this machine, or torch's."""
    return kernels.current() if native_works() else kernels.TORCH


def _blocks_work(registered: Kernels) -> bool:
    """Return whether products of 8-bit blocks have the same bits as `block_products`."""
    generator = torch.Generator().manual_seed(0)
    bytes_of = torch.randint(0, 256, (40, 3, 16), generator=generator, dtype=torch.uint8)
    about = torch.randn((40, 3, 2), generator=generator).half()
    stored = torch.cat([about.view(torch.uint8), bytes_of], dim=-1).flatten(1)
    layer = registered.block_linear([StoredBlocks("Q4_1", stored.numpy())], 96, None)
    numbers, hidden = torch.cat([bytes_of & 15, bytes_of >> 4], dim=-1), torch.randn((5, 96), generator=generator)
    expected = block_products(numbers, *about.float().unbind(-1), hidden)
    return torch.equal(layer(hidden), expected)


def block_products(numbers: Tensor, scales: Tensor, minima: Tensor, hidden: Tensor) -> Tensor:
    """Compute the products of 8-bit blocks with torch's own operations, as the compiled `BlockLinear` defines them.

    Args:
        numbers: (outputs, blocks, block) whole numbers of at most 8 bits.
        scales: (outputs, blocks) float32.
        minima: (outputs, blocks) float32.
        hidden: (rows, blocks · block) float32.

    Returns:
        (rows, outputs) float32.
    """
    outputs, blocks, block = numbers.shape
    read = hidden.view(-1, blocks, block)
    largest = read.abs().amax(-1).clamp_min(1e-30)
    # A tensor, because torch divides a number by a tensor with a reciprocal and a product
    most = torch.full_like(largest, 32767)
    rounded = (read * (most / largest)[..., None]).round().double()
    row_scales, result = largest / most, torch.zeros(len(hidden), outputs)
    sums = row_scales * rounded.sum(-1).float()
    for at in range(blocks):
        products = (rounded[:, at] @ numbers[:, at].double().T).float()
        result = result + products * (scales[:, at] * row_scales[:, at, None])
        result = result + minima[:, at] * sums[:, at, None]
    return result


@functools.cache
def _works(layer: Packing) -> bool:
    """Return whether a packed layer computes the product with a small matrix; torch may have no kernel for it."""
    weight = torch.linspace(-1, 1, 48 * 32).view(48, 32).half().float()
    hidden = torch.linspace(-1, 1, 4 * 32).view(4, 32)
    product = hidden @ weight.T
    try:
        return bool((layer(weight, None)(hidden) - product).norm() < 1e-5 * product.norm())
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


def packed_itemsize(module: nn.Module, dtype: torch.dtype) -> int:
    """Return the bytes of a weight in passes: the smallest of the packed layers in a module, or that of the dtype."""
    packed = (layer.itemsize for layer in module.modules() if hasattr(layer, "itemsize"))
    return min(packed, default=dtype.itemsize)


def pack_linears(module: nn.Module, packing: Packing = packed_linear) -> None:
    """Replace every `nn.Linear` in a module by a packed layer, in place."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, packing(child.weight, child.bias))
        else:
            pack_linears(child, packing)


@torch.inference_mode()
def round_linears(module: nn.Module) -> None:
    """Round the weights of every `nn.Linear` in a module in place, as `BlockLinear.rounded` does."""
    for child in module.modules():
        if type(child) is nn.Linear:
            scales, numbers = rounded_to_blocks(child.weight)
            child.weight.copy_((scales.float() * numbers).flatten(1)[:, : child.in_features])
