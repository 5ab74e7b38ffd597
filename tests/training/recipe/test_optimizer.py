import torch

from jakiro.training.recipe.optimizer import whitening_matrix


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
