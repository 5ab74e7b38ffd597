import pytest
import torch

from jakiro.heads.learning import whitening_matrix
from jakiro.training.optimizer import ROUTER_RATE, muon_and_adamw, orthogonalised


def rows_with_a_large_direction(count):
    rows = torch.randn(count, 12, generator=torch.Generator().manual_seed(0))
    rows[:, 3] = 40 * rows[:, 3] + 100
    return rows


def test_whitened_rows_have_nearly_the_unit_matrix_as_second_moment():
    rows = rows_with_a_large_direction(20000)
    white = rows @ whitening_matrix(rows, damping=1e-4)
    torch.testing.assert_close(white.T @ white / len(white), torch.eye(12), atol=5e-3, rtol=0)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_in_bfloat16_an_update_is_as_good_as_orthogonal_too(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    half = orthogonalised(matrix, torch.bfloat16)
    assert half.dtype == torch.float32
    assert (half - orthogonalised(matrix)).norm() < 0.05 * half.norm()
    singular = torch.linalg.svdvals(half)
    assert singular.min() > 0.5 and singular.max() < 1.3


def test_norms_and_routers_follow_the_recipe_s_own_formula():
    """AdamW with decoupled decay at a learning rate that changes, routers at a fiftieth of it; matrices go to Muon."""
    generator = torch.Generator().manual_seed(7)
    shapes = {"norm.weight": (6,), "gate.weight": (2, 6), "fc.weight": (5, 6)}
    ours = {name: torch.nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in shapes.items()}
    muon, adamw = muon_and_adamw(ours.items(), 0.1, weight_decay=0.01, routers=["gate.weight"])
    expected = {name: ours[name].detach().clone() for name in ("norm.weight", "gate.weight")}
    mean, square = ({name: torch.zeros_like(each) for name, each in expected.items()} for _ in range(2))
    for step, rate in enumerate((0.1, 0.07, 0.02, 0.005), start=1):
        for each in ours.values():
            each.grad = torch.randn(each.shape, generator=generator)
        for group in (*muon.param_groups, *adamw.param_groups):
            group["lr"] = rate * group.get("rate", 1.0)
        for name, weight in expected.items():
            own, gradient = rate * (ROUTER_RATE if name == "gate.weight" else 1.0), ours[name].grad
            mean[name] = 0.9 * mean[name] + 0.1 * gradient
            square[name] = 0.95 * square[name] + 0.05 * gradient**2
            update = mean[name] / (1 - 0.9**step) / ((square[name] / (1 - 0.95**step)).sqrt() + 1e-8)
            expected[name] = weight * (1 - own * 0.01) - own * update
        before = ours["fc.weight"].detach().clone()
        muon.step()
        adamw.step()
        for name, weight in expected.items():
            torch.testing.assert_close(ours[name].detach(), weight, atol=1e-6, rtol=1e-5)
        assert not torch.equal(before, ours["fc.weight"])
