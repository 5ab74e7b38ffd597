"""Packed linear layers: the same function, each row alike however many run together."""

import pytest
import torch
from torch import nn

from jakiro.linear import PackedLinear, pack_linears, packing_works

pytestmark = pytest.mark.skipif(
    not packing_works(torch.device("cpu"), torch.float32), reason="this build of torch cannot pack weights"
)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inner", "outer"), [(64, 96), (192, 64), (63, 260)])
def test_a_packed_layer_is_the_layer_it_replaces(inner, outer, bias):
    layer = nn.Linear(inner, outer, bias=bias).requires_grad_(False)
    packed = PackedLinear(layer.weight, layer.bias)
    assert (packed.in_features, packed.out_features) == (inner, outer)
    for rows in (1, 2, 8, 33):
        hidden = torch.randn(1, rows, inner)
        torch.testing.assert_close(packed(hidden), layer(hidden), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("inner", "outer"), [(64, 96), (192, 64), (576, 260), (1536, 72), (5000, 40)])
def test_a_row_is_computed_alike_however_many_rows_run_together(inner, outer):
    layer = nn.Linear(inner, outer, bias=False).requires_grad_(False)
    packed, hidden = PackedLinear(layer.weight, None), torch.randn(64, inner)
    together = packed(hidden)
    for rows in (1, 2, 3, 8, 16, 24, 33):
        assert torch.equal(packed(hidden[:rows]), together[:rows]), f"{rows} rows"
        assert torch.equal(packed(hidden[-rows:]), together[-rows:]), f"last {rows} rows"


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
