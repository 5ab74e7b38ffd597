"""Merging two experts: neurons are paired by similarity, and equal experts merge without loss."""

import pytest
import torch

from lab.training.uncurl import inner_activations, match_neurons, merged
from tests.training.tiny import tiny_cache, tiny_head, tiny_target


def test_equal_experts_with_permuted_neurons_merge_without_loss(tmp_path):
    target = tiny_target()
    head, cache = tiny_head(target, "decoupled"), tiny_cache(tmp_path, target)
    first, second = head.layers[0].mlp_moe.experts
    order = torch.randperm(len(first.fc.weight), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        second.fc.weight.copy_(first.fc.weight[order])
        second.proj.weight.copy_(first.proj.weight[:, order])
    inner, shares = inner_activations(head, cache, 8)
    assert float(shares.sum()) == pytest.approx(1.0) and inner.shape[0] == 2
    partner = match_neurons(*inner)
    assert torch.equal(order[partner], torch.arange(len(order)))
    single = merged(head, partner, shares)
    torch.testing.assert_close(single.layers[0].mlp_moe.experts[0].fc.weight, first.fc.weight)
    torch.testing.assert_close(single.layers[0].mlp_moe.experts[0].proj.weight, first.proj.weight)
    plain = merged(head, torch.arange(len(order)), torch.full((2,), 0.5))
    assert not torch.allclose(plain.layers[0].mlp_moe.experts[0].fc.weight, first.fc.weight, atol=1e-2)
    embeddings, features, places = torch.randn(1, 5, 16), torch.randn(1, 5, 16), torch.arange(5)[None]
    torch.testing.assert_close(
        single(embeddings, features, places).features[0], head(embeddings, features, places).features[0]
    )


def test_every_neuron_has_a_different_partner():
    generator = torch.Generator().manual_seed(1)
    partner = match_neurons(torch.randn(40, 9, generator=generator), torch.randn(40, 9, generator=generator))
    assert partner.sort().values.tolist() == list(range(9))


def test_only_two_decoupled_experts_can_be_merged():
    with pytest.raises(ValueError, match="Only a decoupled head with two experts can be merged"):
        merged(tiny_head(tiny_target()), torch.arange(12), torch.full((2,), 0.5))
