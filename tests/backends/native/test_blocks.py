"""Products of 8-bit blocks: the weights of the file, and the bits defined in `dots.h` for any number of rows."""

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize

from jakiro.backends.native.linear import BlockLinear
from jakiro.ops.blocks import BLOCKS, StoredBlocks
from jakiro.ops.linear import block_products
from tests import needs
from tests.gguf_files import random_blocks

pytestmark = needs.compiled_functions
ROWS = (1, 2, 3, 5, 8, 13, 14, 15, 16, 29, 40)
MIXES = [["Q5_0", "Q8_0"], ["Q4_1", "Q5_0", "Q5_1"], ["Q6_K", "Q4_K"], ["Q8_0", "Q6_K"], ["Q4_0", "Q4_1"]]


def numbers(kind: str, rows: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(dequantize(rows, gguf.GGMLQuantizationType[kind]))


def all_of(layer: BlockLinear) -> torch.Tensor:
    return layer.rows(torch.arange(layer.out_features))


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("outputs", [1, 77])
def test_every_type_has_the_values_of_the_gguf_package(kind, outputs):
    stored = random_blocks(kind, outputs, 768)
    order = np.random.default_rng(1).permutation(outputs)
    layer = BlockLinear([StoredBlocks(kind, stored, order)], 768)
    assert torch.equal(all_of(layer), numbers(kind, stored)[order])
    ids = torch.tensor([[0, outputs - 1]])
    assert torch.equal(layer.rows(ids), all_of(layer)[ids])


@pytest.mark.parametrize("kinds", MIXES, ids="+".join)
def test_types_are_mixed_in_one_matrix(kinds):
    parts = [StoredBlocks(kind, random_blocks(kind, 20, 512)) for kind in kinds]
    layer, expected = BlockLinear(parts, 512), torch.cat([numbers(*part[:2]) for part in parts])
    assert torch.equal(all_of(layer), expected)
    hidden = torch.randn(5, 512)
    exact = hidden @ expected.T
    assert (layer(hidden) - exact).abs().amax() <= 1e-4 * exact.abs().amax()


@pytest.mark.parametrize("kind", BLOCKS)
def test_product_is_as_accurate_as_16_bits_allow(kind):
    stored, generator = random_blocks(kind, 50, 512), torch.Generator().manual_seed(0)
    hidden, bias = torch.randn((4, 512), generator=generator), torch.randn(50, generator=generator)
    weight = numbers(kind, stored).double()
    result = BlockLinear([StoredBlocks(kind, stored)], 512, bias)(hidden)
    # Each input is rounded by at most half a step
    steps = hidden.double().view(4, -1, 32).abs().amax(-1).repeat_interleave(32, 1) / 32767
    allowed = 0.505 * steps @ weight.abs().T + 1e-5 * (hidden.double().abs() @ weight.abs().T)
    assert ((result - (hidden.double() @ weight.T + bias)).abs() <= allowed).all()


@pytest.mark.parametrize("rows", ROWS)
def test_products_have_the_defined_bits_for_any_number_of_rows(rows):
    """Compare rows in a batch with single rows; sums have the order and the rounding of single torch operations."""
    generator = torch.Generator().manual_seed(rows)
    stored = random_blocks("Q4_1", 90, 288).reshape(90, 9, 20)
    scales, minima = torch.from_numpy(stored[..., :4].copy().view(np.float16)).float().unbind(-1)
    nibbles = torch.from_numpy(stored[..., 4:])
    nibble_values = torch.cat([nibbles & 15, nibbles >> 4], dim=-1)
    hidden = torch.randn((rows, 288), generator=generator) * torch.logspace(-3, 3, 288)
    layer = BlockLinear([StoredBlocks("Q4_1", stored.reshape(90, -1))], 288)
    result = layer(hidden)
    assert torch.equal(result, block_products(nibble_values, scales, minima, hidden))
    assert torch.equal(result, torch.cat([layer(row[None]) for row in hidden]))


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_row_with_a_non_finite_input_is_nan_and_other_rows_are_unchanged(kind, bad):
    layer, hidden = BlockLinear([StoredBlocks(kind, random_blocks(kind, 70, 96))], 96), torch.randn(5, 96)
    expected = layer(hidden)
    hidden[2, 41] = bad
    result = layer(hidden)
    assert result[2].isnan().all()
    assert torch.equal(result[[0, 1, 3, 4]], expected[[0, 1, 3, 4]])


def test_zeros_and_very_large_inputs_give_correct_products():
    stored = np.full((40, 3, 34), 127, dtype=np.uint8)
    stored[..., :2] = np.array([1], dtype=np.float16).view(np.uint8)
    layer = BlockLinear([StoredBlocks("Q8_0", stored.reshape(40, -1))], 96)
    assert torch.equal(layer(torch.zeros(2, 96)), torch.zeros(2, 40))
    torch.testing.assert_close(layer(torch.full((1, 96), 1e30)), torch.full((1, 40), 127 * 96 * 1e30))


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_non_finite_scale_is_refused(kind, bad):
    stored = random_blocks(kind, 33, 512)
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    offset = size - 2 if kind == "Q6_K" else 0
    stored[32, offset : offset + 2] = np.array([bad], dtype=np.float16).view(np.uint8)
    with pytest.raises(ValueError, match="its scales are not all finite"):
        BlockLinear([StoredBlocks(kind, stored)], 512)


@pytest.mark.parametrize("inputs", [64, 72, 96])
def test_float_weights_are_rounded_as_in_q8_0(inputs):
    weight = torch.randn((50, inputs), generator=torch.Generator().manual_seed(inputs))
    weight[3] = 0
    layer = BlockLinear.rounded(weight, None)
    padded = torch.nn.functional.pad(weight, (0, -inputs % 32)).numpy()
    expected = dequantize(gguf.quants.quantize(padded, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0)
    rounded = all_of(layer)
    assert rounded.shape == weight.shape
    assert (rounded != torch.from_numpy(expected)[:, :inputs]).float().mean() < 0.01, "ties may be rounded differently"
    assert torch.equal(all_of(BlockLinear.rounded(rounded, None)), rounded), "rounding must be idempotent"
    hidden = torch.randn(3, inputs)
    torch.testing.assert_close(layer(hidden), hidden @ rounded.T, atol=1e-3, rtol=1e-4)
