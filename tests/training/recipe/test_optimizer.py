import pytest
import torch

from jakiro.training.recipe.optimizer import orthogonalised, whitening_matrix


def rows_with_a_large_direction(count):
    rows = torch.randn(count, 12, generator=torch.Generator().manual_seed(0))
    rows[:, 3] = 40 * rows[:, 3] + 100
    return rows


def test_whitened_rows_have_nearly_the_unit_matrix_as_second_moment():
    rows = rows_with_a_large_direction(20000)
    white = rows @ whitening_matrix(rows, damping=1e-4)
    torch.testing.assert_close(white.T @ white / len(white), torch.eye(12), atol=5e-3, rtol=0)


def test_fewer_rows_than_columns_give_finite_numbers():
    rows = rows_with_a_large_direction(3)
    white = rows @ whitening_matrix(rows)
    assert white.isfinite().all() and white.norm() > 0.5


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_in_bfloat16_an_update_is_as_good_as_orthogonal_too(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    half = orthogonalised(matrix, torch.bfloat16)
    assert half.dtype == torch.float32
    assert (half - orthogonalised(matrix)).norm() < 0.05 * half.norm()
    singular = torch.linalg.svdvals(half)
    assert singular.min() > 0.5 and singular.max() < 1.3
