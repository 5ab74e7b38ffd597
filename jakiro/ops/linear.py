"""Linear layers with packed weights, for float32 passes of few rows on a CPU.

Where there are compiled functions, they multiply (`jakiro.ops.kernels`); the layers here are for all other
machines: one row times sixty matrices of 1536 × 576 takes 8.0 ms, with `nn.Linear` 15.1 (Zen 3). The stock layer hands
a row-major matrix to a general matrix product, which is slow for 2 to 64 rows and whose rounding depends on the number
of rows. Packed once at load, the same weights are read at memory speed, and each row is computed alike however many
rows run together: torch's kernels, which differ by processor, run only with numbers of rows that were tried on this one
and came out alike.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from jakiro.ops import kernels
from jakiro.ops.blocks import StoredBlocks
from jakiro.ops.kernels import Kernels, Packing
from jakiro.ops.rounding import rounded_to_blocks

_TYPICAL_ROWS = 8
# Numbers of rows that are tried, and rows of the largest tree: more than that are read from a prompt
_TRIED_ROWS, _TREE_ROWS = 64, 256
# The largest matrix, in weights, of which all outputs are tried; and the fewest results compared per row: a single one
# may round to the same bits by chance
_TRIED_WEIGHTS, _TRIED_RESULTS = 2**20, 64


class PackedLinear(nn.Module):
    """Same function as the `nn.Linear` it replaces, by oneDNN's packed kernel."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = None if bias is None else bias.detach()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _TYPICAL_ROWS)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(hidden, self.packed, self.bias, "none", [], "")


class BatchInvariantLinear(nn.Module):
    """A packed layer that computes each row alike however many run together.

    Torch's kernels have special cases, for one row or for the last rows of many, that add the same products up in
    another order. So rows are padded with rows of zeros to a number without such a case, and a large tree is computed
    in parts. Prompts are not padded: they are the same for every method.

    Args:
        layer: the layer; counts: numbers of rows that it computes alike, ascending, see `alike_counts`.
    """

    def __init__(self, layer: nn.Module, counts: Sequence[int]) -> None:
        super().__init__()
        self.layer, self._most = layer, counts[-1]
        self.out_features, self.in_features = layer.out_features, layer.in_features
        # At each number of rows, those to run with
        self._rows = [next(count for count in (0, *counts) if count >= rows) for rows in range(self._most + 1)]

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


def packed_linear(weight: Tensor, bias: Tensor | None) -> nn.Module:
    """The fastest packed layer that changes no weight.

    Of float32 weights one that rounds each row alike on this processor; bfloat16 ones promise no such thing.
    """
    if weight.dtype == torch.bfloat16:
        return PackedLinear(weight, bias)
    linear = linear_kernels().linear
    if linear is not None:
        return linear(weight, bias)
    return BatchInvariantLinear(PackedLinear(weight, bias), alike_counts(PackedLinear, *weight.shape, bias is not None))


def alike_counts(layer: Packing, out_features: int, in_features: int, bias: bool = False) -> tuple[int, ...]:
    """The numbers of rows that a packed layer of this shape computes alike on this processor, ascending.

    For every number up to `_TRIED_ROWS`, a pass over as many copies of one row is tried. Where all copies get the same
    bits, the number joins the group of those that gave these bits; the largest group is returned. With a number outside
    it, the kernel treats some rows as a special case. Each shape and number of threads is tried once, with random
    weights, in some tens of milliseconds.
    """
    if out_features * in_features > _TRIED_WEIGHTS:
        # As many outputs as before are left over after whole blocks of a kernel
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
    """The product of a stock layer with the weights that it has during the call."""

    def __init__(self, linear: nn.Linear) -> None:
        self.linear, self.out_features, self.in_features = linear, linear.out_features, linear.in_features

    def __call__(self, rows: Tensor) -> Tensor:
        return nn.functional.linear(rows, self.linear.weight, self.linear.bias)

    @staticmethod
    def packing(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """Return the product with these weights, for `alike_counts`."""
        return functools.partial(nn.functional.linear, weight=weight, bias=bias)


def make_rows_invariant(module: nn.Module) -> None:
    """Let every `nn.Linear` below a module compute each row alike, in place, and leave its weights where they are.

    For layers whose weights accelerate's hooks load for each call, so that they cannot be packed.
    """
    for linear in [child for child in module.modules() if type(child) is nn.Linear]:
        shape = linear.out_features, linear.in_features, linear.bias is not None
        layer = BatchInvariantLinear(StockLinear(linear), alike_counts(StockLinear.packing, *shape))
        # accelerate's hook calls `_old_forward` between loading and releasing the weights
        setattr(linear, "_old_forward" if hasattr(linear, "_hf_hook") else "forward", layer.forward)


class RowTable(Protocol):
    """A stored matrix whose rows are looked up by index, such as `jakiro.backends.native.linear.BlockLinear`."""

    shape: tuple[int, int]
    device: torch.device
    dtype: torch.dtype

    def rows(self, ids: Tensor) -> Tensor:
        """Return the rows of (…,) int64 ids as (…, width) float32."""


def looked_up(table: Tensor | RowTable, ids: Tensor) -> Tensor:
    """(…,) int64 numbers of rows → (…, width), the rows of an embedding or an output function."""
    return nn.functional.embedding(ids, table) if isinstance(table, Tensor) else table.rows(ids)


def packing_works(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch packs weights for this device and dtype, tried on a small matrix."""
    if device.type != "cpu" or dtype != torch.float32:
        return False
    return native_works() or (torch.backends.mkldnn.is_available() and _works(PackedLinear))


def packs_bfloat16(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether bfloat16 matrices can be packed, for many rows: processors that multiply them in hardware do."""
    is_wanted = device.type == "cpu" and dtype == torch.bfloat16 and torch.backends.mkldnn.is_available()
    return is_wanted and torch.ops.mkldnn._is_mkldnn_bf16_supported()


@functools.cache
def native_works() -> bool:
    """Whether there are compiled functions, and they multiply as they should."""
    found = kernels.current()
    return found is not kernels.TORCH and _works(found.linear) and _blocks_work(found)


def linear_kernels() -> Kernels:
    """Return the kernels whose products were checked on this machine, or torch's."""
    return kernels.current() if native_works() else kernels.TORCH


def _blocks_work(found: Kernels) -> bool:
    """Whether products of 8-bit blocks have the bits of what `dots.h` says, computed number by number."""
    generator = torch.Generator().manual_seed(0)
    bytes_of = torch.randint(0, 256, (40, 3, 16), generator=generator, dtype=torch.uint8)
    about = torch.randn((40, 3, 2), generator=generator).half()
    stored = torch.cat([about.view(torch.uint8), bytes_of], dim=-1).flatten(1)
    layer = found.block_linear([StoredBlocks("Q4_1", stored.numpy())], 96, None)
    numbers, hidden = torch.cat([bytes_of & 15, bytes_of >> 4], dim=-1), torch.randn((5, 96), generator=generator)
    expected = block_products(numbers, *about.float().unbind(-1), hidden)
    return torch.equal(layer(hidden), expected)


def block_products(numbers: Tensor, scales: Tensor, minima: Tensor, hidden: Tensor) -> Tensor:
    """What `BlockLinear` computes, in torch's own operations.

    Args:
        numbers: (outputs, blocks, block) whole numbers of at most 8 bits; scales, minima: (outputs, blocks) float32.
        hidden: (rows, blocks · block) float32.
    """
    outputs, blocks, block = numbers.shape
    read = hidden.view(-1, blocks, block)
    largest = read.abs().amax(-1).clamp_min(1e-30)
    # Of a number over a tensor torch makes a reciprocal and a product
    most = torch.full_like(largest, 32767)
    whole = (read * (most / largest)[..., None]).round().double()
    row_scales, result = largest / most, torch.zeros(len(hidden), outputs)
    sums = row_scales * whole.sum(-1).float()
    for at in range(blocks):
        products = (whole[:, at] @ numbers[:, at].double().T).float()
        result = result + products * (scales[:, at] * row_scales[:, at, None])
        result = result + minima[:, at] * sums[:, at, None]
    return result


@functools.cache
def _works(layer: Packing) -> bool:
    """Whether a packed layer's results over a small matrix are the product; torch may have no kernel for it."""
    weight = torch.linspace(-1, 1, 48 * 32).view(48, 32).half().float()
    hidden = torch.linspace(-1, 1, 4 * 32).view(4, 32)
    product = hidden @ weight.T
    try:
        return bool((layer(weight, None)(hidden) - product).norm() < 1e-5 * product.norm())
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


def packed_itemsize(module: nn.Module, dtype: torch.dtype) -> int:
    """Bytes of a weight as passes read it: those of the smallest packed one below a module, else its dtype's."""
    packed = (layer.itemsize for layer in module.modules() if hasattr(layer, "itemsize"))
    return min(packed, default=dtype.itemsize)


def pack_linears(module: nn.Module, packing: Packing = packed_linear) -> None:
    """Replaces every `nn.Linear` below `module` by a packed one, in place."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, packing(child.weight, child.bias))
        else:
            pack_linears(child, packing)


@torch.inference_mode()
def round_linears(module: nn.Module) -> None:
    """Rounds the weights of every `nn.Linear` below `module` in place to what `BlockLinear.rounded` keeps of them."""
    for child in module.modules():
        if type(child) is nn.Linear:
            scales, numbers = rounded_to_blocks(child.weight)
            child.weight.copy_((scales.float() * numbers).flatten(1)[:, : child.in_features])
