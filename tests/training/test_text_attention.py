"""Attention of many texts in C against torch's own."""

import pytest
import torch
from torch.nn import functional

from jakiro.kernels.compiled.library import library, why_not
from jakiro.training.text_attention import attend_texts, works_on

pytestmark = pytest.mark.skipif(library() is None, reason=f"no compiled functions: {why_not()}")


@pytest.mark.parametrize(("kv_heads", "group", "width"), [(2, 1, 32), (3, 3, 64), (1, 8, 96), (2, 11, 32)])
def test_each_row_attends_to_its_own_text_alone(kv_heads, group, width):
    torch.manual_seed(0)
    texts, capacity = 5, 70
    keys, values = torch.randn(2, texts + 1, kv_heads, capacity, width).bfloat16()
    queries = torch.randn(texts, kv_heads * group, width)
    lengths = torch.tensor([1, capacity, 16, 33, 15])
    unseen = torch.arange(capacity) >= torch.cat([lengths, lengths[:1]])[:, None]
    for rows in (keys, values):
        rows[unseen[:, None].expand(rows.shape[:3])] = torch.nan
    assert works_on(keys)
    found = attend_texts(queries, keys, values, lengths, 0.3)
    expected = functional.scaled_dot_product_attention(
        queries.view(texts, kv_heads, group, width),
        keys[:texts].float().nan_to_num(),
        values[:texts].float().nan_to_num(),
        attn_mask=~unseen[:texts, None, None],
        scale=0.3,
    ).reshape(texts, -1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_other_types_and_widths_are_left_to_torch():
    assert not works_on(torch.zeros(1, 1, 4, 64))
    assert not works_on(torch.zeros(1, 1, 4, 3, dtype=torch.bfloat16))
