"""A head as it runs on a GPU: matrices that read the same rows are one, and the numbers are the stock layers'."""

import copy

import pytest
import torch
from torch.nn import functional

from tests.support import HEADS, tiny_head, tiny_target

ROWS, BEFORE = 5, 3


@pytest.mark.parametrize("kind", HEADS)
@torch.inference_mode()
def test_a_fused_head_attends_by_groups_as_the_stock_layer_does(kind, monkeypatch):
    target = tiny_target()
    stock = tiny_head(target, **HEADS[kind])
    fused = copy.deepcopy(stock)
    fused.fuse()
    ids, features = torch.arange(BEFORE + ROWS), torch.randn((BEFORE + ROWS, stock.config.feature_size))
    outputs, attend, grouped = [], functional.scaled_dot_product_attention, []

    def watched(*given, **more):
        grouped.append(more.get("enable_gqa", False))
        return attend(*given, **more)

    for head in (stock, fused):
        cache = head.new_cache(BEFORE + ROWS)
        head.extend(ids[:BEFORE], features[:BEFORE], cache)
        with monkeypatch.context() as patch:
            patch.setattr(functional, "scaled_dot_product_attention", watched)
            outputs.append(head.extend(ids[BEFORE:], features[BEFORE:], cache))
    assert grouped == [True, False], "torch's fused kernel with a mask knows no grouped queries"
    for one, other in zip(*outputs, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, atol=1e-5)
