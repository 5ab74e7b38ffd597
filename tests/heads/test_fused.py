"""A head as it runs on a GPU; tests/backends/test_buffers.py compares its numbers with stock layers."""

import torch
from torch.nn import functional

from tests.support import tiny_head, tiny_target


@torch.inference_mode()
def test_fused_head_does_not_use_grouped_queries_of_torch(monkeypatch):
    """torch's fused kernel with a mask does not support them."""
    head, attend, grouped = tiny_head(tiny_target()), functional.scaled_dot_product_attention, []

    def record(*arguments, **options):
        grouped.append(options.get("enable_gqa", False))
        return attend(*arguments, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", record)
    for fuse in (lambda: None, head.fuse):
        fuse()
        cache = head.new_cache(8)
        head.extend(torch.arange(3), torch.randn((3, head.config.feature_size)), cache)
        grouped.clear()
        head.extend(torch.arange(5), torch.randn((5, head.config.feature_size)), cache)
        assert grouped == [fuse != head.fuse]
