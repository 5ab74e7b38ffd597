"""Packed linear layers: the same function, each row alike however many run together."""

import pytest
import torch
from torch import nn

from jakiro.kernels.compiled.library import library
from jakiro.kernels.compiled.linear import NativeLinear
from jakiro.kernels.linear import (
    HalfPackedLinear,
    PackedLinear,
    lossless_exponent,
    pack_linears,
    packed_linear,
    packing_works,
)

pytestmark = pytest.mark.skipif(
    not packing_works(torch.device("cpu"), torch.float32), reason="this build of torch cannot pack weights"
)


native = pytest.mark.skipif(library() is None, reason="no compiled functions here")
KINDS = [
    (PackedLinear, False),
    (HalfPackedLinear, True),
    pytest.param(NativeLinear, False, marks=native, id="NativeLinear-32"),
    pytest.param(NativeLinear, True, marks=native, id="NativeLinear-16"),
]


@pytest.fixture
def linear(monkeypatch):
    """Makes a layer whose weights fit the kind of packing, and its packed form."""

    def make(inner: int, outer: int, kind: type, in_half: bool, bias: bool = False) -> tuple[nn.Linear, nn.Module]:
        monkeypatch.setattr("jakiro.kernels.linear.native_works", lambda: kind is NativeLinear)
        return packed_pair(inner, outer, kind, in_half, bias)

    return make


def packed_pair(inner: int, outer: int, kind: type, in_half: bool, bias: bool) -> tuple[nn.Linear, nn.Module]:
    layer = nn.Linear(inner, outer, bias=bias).requires_grad_(False)
    if in_half:
        layer.weight.copy_(layer.weight.bfloat16().float())
        # Below float16's range until it is multiplied by a power of two
        layer.weight[0, :2] = torch.tensor([1.0, 2.0**-30])
    packed = packed_linear(layer.weight, layer.bias)
    assert type(packed) is kind
    assert not in_half or packed.itemsize == 2
    return layer, packed


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kind", "in_half"), KINDS)
@pytest.mark.parametrize(("inner", "outer"), [(64, 96), (192, 64), (63, 260)])
def test_a_packed_layer_is_the_layer_it_replaces(inner, outer, kind, in_half, bias, linear):
    layer, packed = linear(inner, outer, kind, in_half, bias)
    assert (packed.in_features, packed.out_features) == (inner, outer)
    for rows in (1, 2, 8, 33):
        hidden = torch.randn(1, rows, inner)
        torch.testing.assert_close(packed(hidden), layer(hidden), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kind", "in_half"), KINDS)
@pytest.mark.parametrize(("inner", "outer"), [(64, 96), (192, 64), (576, 260), (1536, 72), (5000, 40)])
def test_a_row_is_computed_alike_however_many_rows_run_together(inner, outer, kind, in_half, linear):
    _, packed = linear(inner, outer, kind, in_half)
    hidden = torch.randn(64, inner)
    together = packed(hidden)
    for rows in (1, 2, 3, 8, 16, 24, 33):
        assert torch.equal(packed(hidden[:rows]), together[:rows]), f"{rows} rows"
        assert torch.equal(packed(hidden[-rows:]), together[-rows:]), f"last {rows} rows"


@pytest.mark.parametrize(
    ("weight", "exponent"),
    [
        ([0.5, -1.5, 65504.0], 0),
        ([0.0, 0.0], 0),
        ([2.0**-24, 1.0], 0),
        ([2.0**-26, 1.0], 15),
        ([65536.0, 1.0], -1),
        ([2.0**-45, 1.0], None),
        ([0.1, 1.0], None),
        ([float("nan"), 1.0], None),
        ([float("inf"), 1.0], None),
    ],
)
def test_weights_are_kept_in_16_bits_only_where_none_changes(weight, exponent):
    weight = torch.tensor([weight])
    found = lossless_exponent(weight)
    assert found == exponent
    if exponent is not None:
        assert torch.equal((weight * 2.0**found).half().float() * 2.0**-found, weight)


def test_every_linear_layer_below_a_module_is_replaced_in_place():
    module = nn.Sequential(nn.Linear(4, 5), nn.ModuleDict({"inner": nn.Sequential(nn.ReLU(), nn.Linear(5, 6))}))
    module.requires_grad_(False)
    hidden = torch.randn(3, 4)
    expected = module[1]["inner"](module[0](hidden))
    assert pack_linears(module) == 2
    assert not any(isinstance(layer, nn.Linear) for layer in module.modules())
    torch.testing.assert_close(module[1]["inner"](module[0](hidden)), expected, atol=1e-5, rtol=1e-5)


def test_only_float32_on_a_cpu_is_packed():
    assert not packing_works(torch.device("cpu"), torch.bfloat16)
    assert not packing_works(torch.device("meta"), torch.float32)
