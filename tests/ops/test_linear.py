"""Packed linear layers: the same function, with rows that do not depend on the number of rows."""

import pytest
import torch
from torch import nn

from jakiro.ops import kernels
from jakiro.ops.linear import (
    BatchInvariantLinear,
    alike_counts,
    pack_linears,
    packed_linear,
    packing_works,
)

pytestmark = pytest.mark.skipif(
    not packing_works(torch.device("cpu"), torch.float32), reason="this build of torch cannot pack weights"
)


COMPILED = [
    pytest.param(False, id="torch"),
    pytest.param(
        True,
        id="compiled",
        marks=pytest.mark.skipif(kernels.current() is kernels.TORCH, reason="no compiled functions here"),
    ),
]


# Types that store the weights without loss
KINDS = [pytest.param(None, id="32"), torch.bfloat16]


@pytest.fixture
def packed_pair(monkeypatch):
    """Return a function that makes a layer and its packed version."""

    def make(inner: int, outer: int, compiled: bool, kept_as, bias: bool = False) -> tuple[nn.Linear, nn.Module]:
        monkeypatch.setattr("jakiro.ops.linear.native_works", lambda: compiled)
        layer = nn.Linear(inner, outer, bias=bias).requires_grad_(False)
        if kept_as is not None:
            layer.weight.copy_(layer.weight.to(kept_as).float())
        return layer, packed_linear(layer.weight, layer.bias)

    return make


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kept_as", KINDS)
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(("inner", "outer"), [(64, 96), (192, 64), (63, 260)])
def test_packed_layer_equals_the_original(inner, outer, compiled, kept_as, bias, packed_pair):
    layer, packed = packed_pair(inner, outer, compiled, kept_as, bias)
    assert (packed.in_features, packed.out_features) == (inner, outer)
    for rows in (0, 1, 2, 8, 33, 70, 300):
        hidden = torch.randn(1, rows, inner)
        torch.testing.assert_close(packed(hidden), layer(hidden), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kept_as", KINDS)
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    ("inner", "outer"), [(64, 96), (192, 64), (576, 260), (576, 960), (1536, 72), (1536, 576), (5000, 40)]
)
def test_row_does_not_depend_on_the_number_of_rows(inner, outer, compiled, kept_as, packed_pair):
    _, packed = packed_pair(inner, outer, compiled, kept_as)
    hidden = torch.randn(256, inner)
    together = packed(hidden)
    for rows in (*range(1, 34), 38, 50, 64, 65, 121, 128, 255):
        assert torch.equal(packed(hidden[:rows]), together[:rows]), f"{rows} rows"
        assert torch.equal(packed(hidden[-rows:]), together[-rows:]), f"last {rows} rows"


class Kernel(nn.Module):
    """A product that runs `block` rows together; a remainder of a size in `away` is summed differently.

    This is similar to torch's 16-bit kernel without AVX-512, which runs six rows together and treats a remainder of one
    or two rows differently.
    """

    block, away = 6, (1, 2)

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        product = (hidden[:, None] * self.weight).sum(-1)
        remainder = len(hidden) % self.block
        if remainder in self.away:
            product[-remainder:] += 1e-6
        return product


class OneRow(Kernel):
    """A kernel that treats a single row differently."""

    block, away = 1000, (1,)


class NeverAlike(Kernel):
    """A kernel with other sums for every number of rows."""

    block, away = 1000, range(1, 1000)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden) * (1 + 1e-6 * len(hidden))


@pytest.mark.parametrize(
    ("kernel", "missing"),
    [
        (Kernel, {rows for rows in range(1, 65) if rows % 6 in (1, 2)}),
        (OneRow, {1}),
        (NeverAlike, set(range(2, 65))),
    ],
)
def test_batch_invariant_layer_uses_row_counts_with_equal_results(kernel, missing):
    counts = alike_counts(kernel, 24, 32)
    assert set(range(1, 65)) - set(counts) == missing
    packed = BatchInvariantLinear(kernel(torch.randn(24, 32), None), counts)
    hidden = torch.randn(150, 32)
    together = packed(hidden)
    for rows in (1, 2, 3, 6, 7, 8, 13, 31, 64, 65, 127, 128):
        assert torch.equal(packed(hidden[:rows]), together[:rows]), f"{rows} rows"
        assert torch.equal(packed(hidden[-rows:]), together[-rows:]), f"last {rows} rows"


def test_every_linear_layer_below_a_module_is_replaced_in_place():
    module = nn.Sequential(nn.Linear(4, 5), nn.ModuleDict({"inner": nn.Sequential(nn.ReLU(), nn.Linear(5, 6))}))
    module.requires_grad_(False)
    hidden = torch.randn(3, 4)
    expected = module[1]["inner"](module[0](hidden))
    pack_linears(module)
    assert not any(isinstance(layer, nn.Linear) for layer in module.modules())
    torch.testing.assert_close(module[1]["inner"](module[0](hidden)), expected, atol=1e-5, rtol=1e-5)


def test_only_float32_on_a_cpu_is_packed():
    assert not packing_works(torch.device("cpu"), torch.bfloat16)
    assert not packing_works(torch.device("meta"), torch.float32)
