"""Some layers of a target, run separately, equal a stock model with only these layers."""

import pytest
import torch
from torch import nn

from jakiro.models.target import TargetModel
from lab.layers.subset import LayerSubset
from tests.support import DEVICE, byte_tokenizer, tiny_model, tiny_target

NUMBERS = ((0, 1, 2, 3), (0, 2), (1,), (0, 1, 3))


def model_of(numbers):
    """Return a stock model with only these of four layers."""
    stock = tiny_model(layers=4)
    stock.model.layers = nn.ModuleList(stock.model.layers[number] for number in numbers)
    for place, layer in enumerate(stock.model.layers):
        layer.self_attn.layer_idx = place
    return stock


def causal(cache, rows):
    order = torch.arange(rows, device=DEVICE)
    return cache.visible(order <= order[:, None])


@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
@pytest.mark.parametrize("together", [6, 80], ids=["few rows", "many rows"])
def test_a_subset_equals_a_stock_model_of_these_layers(numbers, together):
    ids = torch.arange(2 * together, device=DEVICE) * 7 % 250
    expected = model_of(numbers).model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    target = TargetModel(tiny_model(layers=4), byte_tokenizer(), "tiny")
    subset = LayerSubset(target, numbers)
    cache, outputs = subset.new_cache(len(ids)), []
    for part in ids.split(together):
        embeddings = target.embedding[part]
        before = embeddings.clone()
        positions = torch.arange(cache.length, cache.length + together, device=DEVICE)
        outputs.append(subset.normed(subset(embeddings, positions, causal(cache, together), cache)))
        assert torch.equal(embeddings, before)
    torch.testing.assert_close(torch.cat(outputs), expected, rtol=1e-3, atol=1e-3)
    assert cache.length == len(ids)


def test_a_longer_cache_has_the_same_rows():
    subset = LayerSubset(tiny_target(), (0, 1))
    hidden, places = torch.randn(7, 64, device=DEVICE), torch.arange(7, device=DEVICE)
    whole_cache, small = subset.new_cache(7), subset.new_cache(5)
    expected = subset(hidden, places, causal(whole_cache, 7), whole_cache)
    subset(hidden[:5], places[:5], causal(small, 5), small)
    larger = subset.new_cache(20)
    larger.load_prefix(small.first(5))
    assert (larger.length, larger.capacity) == (5, 20)
    torch.testing.assert_close(subset(hidden[5:], places[5:], causal(larger, 2), larger), expected[5:])
