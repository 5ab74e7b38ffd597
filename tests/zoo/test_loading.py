"""Which dtype a processor gets, and that half precision keeps the bits."""

import pytest
import torch

from jakiro.target.model import TargetModel
from jakiro.zoo import loading
from tests.support import DEVICE, byte_tokenizer, tiny_model


def test_a_cpu_runs_float32_unless_asked_otherwise():
    cpu = torch.device("cpu")
    assert loading.choose_dtype(None, cpu) is torch.float32
    assert loading.choose_dtype("bfloat16", cpu) is torch.bfloat16


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a GPU runs all passes with the same number of rows")
@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 1), (torch.bfloat16, 2)])
def test_half_precision_never_runs_a_row_alone(dtype, rows):
    """Most differences of a single row's kernel round away there, so that a probe may find none."""
    target = TargetModel(tiny_model().to(dtype), byte_tokenizer())
    assert target.row_bucket(1) == rows or not target.bit_identical
    assert target.row_bucket(5) == 5
