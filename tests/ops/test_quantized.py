"""8-bit matrices of draft heads: nearly the same output, and always the same text."""

import pytest
import torch

from jakiro.heads.base import known_precision
from jakiro.heads.layers import HeadOutput
from jakiro.ops.rounding import column_factors
from tests.support import tiny_head, tiny_target


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_balancing_a_matrix_changes_no_bit(dtype):
    weight = (torch.randn(48, 40) * torch.logspace(-3, 3, 40)).to(dtype)
    weight[:, 7] = 0
    hidden = torch.randn(5, 40, dtype=dtype)
    factors = column_factors(weight)
    even = weight / factors
    sizes = torch.cat([even[:, :7], even[:, 8:]], dim=1).float().square().mean(0).sqrt()
    assert sizes.min() > 0.7 and sizes.max() < 1.5
    assert torch.equal(even * (hidden * factors)[:, None], weight * hidden[:, None])
    assert not even[:, 7].any() and factors[7] == 1
    assert torch.equal(column_factors(torch.cat([weight, torch.zeros_like(weight)])), factors)


def test_unknown_precision_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="one of int8, full; got 'int4'"):
        known_precision("int4")


@pytest.mark.parametrize("fusion", ["summed", "decoupled"])
def test_packed_head_equals_the_original(fusion):
    target = tiny_target()
    plain, packed = tiny_head(target, fusion), tiny_head(target, fusion).pack("full")
    caches = [head.new_cache(32) for head in (plain, packed)]
    for start, rows in ((0, 7), (7, 1), (8, 4)):
        embeddings, features = torch.randn(2, 1, rows, plain.config.hidden_size)
        positions = torch.arange(start, start + rows)[None]
        mask = None if start == 0 else (torch.arange(start + rows) <= positions[0, :, None])[None, None]
        outputs = [
            head(embeddings, features, positions, mask, cache)
            for head, cache in zip((plain, packed), caches, strict=True)
        ]
        for name, expected, actual in zip(HeadOutput._fields, *outputs, strict=True):
            if expected is not None:
                torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5, msg=name)


def test_head_with_dynamic_rotary_embedding_stays_in_full_precision():
    target = tiny_target()
    head = tiny_head(target)
    head.rotary.rope_type = "dynamic"
    assert head.pack().precision == "full" and len(head.layers) == 1
