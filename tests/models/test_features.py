"""Heads that read additional layers of the target: the same rows in every pass, and unchanged logits."""

import copy

import pytest
import torch

from jakiro.models.features import features_of
from jakiro.models.target import TargetModel
from tests.models.test_families import family_model
from tests.support import DEVICE, HIDDEN_SIZE, byte_tokenizer, prompt_ids, tiny_model, tree_of

LAYERS = (1, 3)


def stock_rows(model, ids):
    """Return the hidden states of a stock model: the last one, and the outputs of `LAYERS`."""
    with torch.no_grad():
        states = model.base_model(input_ids=ids[None], output_hidden_states=True).hidden_states
    return torch.cat([states[-1][0], *(states[layer][0] for layer in LAYERS)], dim=-1)


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_prompt_and_tree_passes_return_the_rows_of_every_layer(numerics):
    stock = tiny_model(layers=4)
    plain = TargetModel(copy.deepcopy(stock), byte_tokenizer(), numerics=numerics)
    target = plain.with_feature_layers(LAYERS)
    ids = torch.tensor(prompt_ids("Tell me why."), device=DEVICE)
    cache, bare = target.new_cache(64), plain.new_cache(64)
    features, logits = target.prefill(ids, cache)
    expected, expected_logits = plain.prefill(ids, bare)
    torch.testing.assert_close(features, stock_rows(stock, ids), atol=1e-4, rtol=1e-4)
    assert torch.equal(features[:, :HIDDEN_SIZE], expected) and torch.equal(logits, expected_logits)
    tree = tree_of([5, 6, 7], [-1, 0, 0])
    scores, without = target.score(tree, cache), plain.score(tree, bare)
    assert torch.equal(scores.logits, without.logits)
    assert scores.features.shape == (3, target.feature_size) == (3, 3 * HIDDEN_SIZE)
    for node, path in enumerate([[5], [5, 6], [5, 7]]):
        reference = stock_rows(stock, torch.cat([ids, torch.tensor(path, device=DEVICE)]))[-1]
        torch.testing.assert_close(scores.features[node], reference, atol=1e-4, rtol=1e-4)


def test_families_without_the_fused_pass_give_the_same_rows():
    model = family_model("Falcon")
    target = TargetModel(copy.deepcopy(model), byte_tokenizer()).with_feature_layers((1,))
    assert target.fused is None
    ids = torch.arange(3, 15, device=DEVICE)
    features, _ = target.prefill(ids, target.new_cache(40))
    with torch.no_grad():
        expected = features_of(model.base_model, (1,), input_ids=ids[None])[0]
    torch.testing.assert_close(features, expected, atol=1e-4, rtol=1e-4)
