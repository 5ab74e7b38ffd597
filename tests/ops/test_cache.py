"""The target's cache: appended rows, compaction, and equality with a fresh prefill after every commit."""

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.ops.cache import RowCache
from tests.support import DEVICE, TREE, prompt_ids, scripted_generator, tiny_generator

LAYERS = 3


def filled(rows, capacity=20, storage_dtype=None):
    """Return a cache with the number r in row r of the keys of every layer, and -r in the values."""
    cache = RowCache(LAYERS, capacity, storage_dtype)
    numbers = torch.arange(rows, dtype=torch.float32, device=DEVICE).view(1, 1, rows, 1).expand(1, 2, rows, 4)
    for layer in range(LAYERS):
        cache.update(numbers + 100 * layer, -numbers, layer)
    return cache


def rows_of(cache, layer=0):
    return cache.layers[layer].keys[0, 0, : cache.length, 0].tolist()


def test_a_wider_storage_type_keeps_every_bit():
    cache = RowCache(1, 8, torch.float64)
    rows = torch.randn((1, 2, 5, 4), device=DEVICE).bfloat16()
    keys, values = cache.update(rows, -rows, 0)
    assert keys.dtype == values.dtype == torch.float64
    assert torch.equal(keys.bfloat16(), rows) and torch.equal(values.bfloat16(), -rows)


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(1.0, seed=2), SamplingParams(0.7, top_p=0.9)])
@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_cache_after_commit_equals_fresh_prefill(sampling, numerics):
    for generator in (scripted_generator(0.4, numerics=numerics), tiny_generator("summed", numerics=numerics)):
        target = generator.target
        for method in ("jakiro", "autoregressive"):
            stream = generator.stream("Why is the sky blue?", sampling, method=method, tree=TREE)
            accepted = []
            for _ in range(8):
                accepted.append(len(next(stream).accepted_path))
                committed = [*prompt_ids("Why is the sky blue?"), *stream.trace.token_ids[:-1]]
                fresh = target.new_cache(len(committed))
                target.prefill(torch.tensor(committed, device=DEVICE), fresh)
                assert stream._backend.cache.length == fresh.length == len(committed)
                for layer, expected in zip(stream._backend.cache.layers, fresh.layers, strict=True):
                    for name in ("keys", "values"):
                        rows = getattr(layer, name)[:, :, : fresh.length]
                        torch.testing.assert_close(rows, getattr(expected, name), atol=1e-4, rtol=1e-4)
            if method == "jakiro" and stream.trace.header.drafter["name"] == "script":
                assert max(accepted) > 1


@pytest.mark.parametrize(
    ("base", "accepted"), [(5, [0, 1, 2]), (5, [0, 2, 4]), (5, [0, 6]), (5, [0, 1, 3, 4]), (5, []), (0, [3])]
)
@pytest.mark.parametrize(
    ("shapes", "shared"),
    [
        ([(2, 4, 4)] * 3, [True, True, True]),
        ([(2, 4, 4), (1, 4, 4), (2, 8, 8)], [True, False, False]),
        ([(2, 4, 6), (2, 4, 4), (2, 4, 4)], [False, True, True]),
    ],
)
def test_accepted_rows_are_compacted_in_shared_and_separate_tensors(shapes, shared, base, accepted):
    """Shapes are (heads, key width, value width); layers that differ from the first one store their own rows."""
    torch.manual_seed(0)
    cache = RowCache(len(shapes), 20)
    written = []
    for layer, (heads, key_width, value_width) in enumerate(shapes):
        states = [torch.randn((1, heads, 12, width), device=DEVICE) for width in (key_width, value_width)]
        cache.update(*states, layer)
        written.append(states)
    assert [not layer.by_itself for layer in cache.layers] == shared
    cache.keep(base, accepted)
    rows = [*range(base), *(base + row for row in accepted)]
    assert cache.length == len(rows)
    for layer, (keys, values) in zip(cache.layers, written, strict=True):
        assert torch.equal(layer.keys[:, :, : cache.length], keys[:, :, rows])
        assert torch.equal(layer.values[:, :, : cache.length], values[:, :, rows])


@pytest.mark.parametrize(("base", "rows"), [(13, []), (12, [0]), (5, [0, 7]), (5, [9, 0])])
def test_compaction_of_unfilled_rows_is_refused(base, rows):
    cache = filled(12)
    with pytest.raises(ValueError, match=r"cannot keep 1[345] rows: the cache has only 12"):
        cache.keep(base, rows)
    assert rows_of(cache) == list(range(12))
