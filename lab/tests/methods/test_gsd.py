"""GSD: which candidates have a twin, that the graph has no circle, what is saved, and that the target sees a tree."""

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import DraftRequest
from jakiro.drafters.head import HeadDrafter
from lab.methods.gsd import RunGraph, graph_drafter
from tests.support import DEVICE, HEADS, HIDDEN_SIZE, assert_is_a_tree, prompt_of, tiny_head, tiny_target

IDS = torch.randint(0, 250, (13,), generator=torch.Generator().manual_seed(5)).to(DEVICE)
FEATURES = torch.randn((12, HIDDEN_SIZE), generator=torch.Generator().manual_seed(6)).to(DEVICE)
CONFIG = TreeConfig(8, 5, 200, contrastive=False)


def test_a_twin_ends_in_the_same_tokens_and_stands_in_another_branch():
    graph = RunGraph(1, shared=2)
    first, second = graph.add(0, 5), graph.add(0, 6)
    third = graph.add(first, 7)
    assert graph.twin(second, 7) is None, "6 7 was never drafted"
    other = graph.add(second, 5)
    assert graph.twin(other, 7) == third, "5 7 was"
    assert graph.twin(other, 6) is None


def test_a_node_is_no_twin_of_what_follows_from_it():
    graph = RunGraph(1, shared=1)
    first = graph.add(0, 5)
    assert graph.twin(first, 5) is None, "5 after 5 would follow itself"
    second = graph.add(first, 6)
    assert graph.twin(second, 5) is None, "5 6 5 leads back"
    other = graph.add(0, 7)
    assert graph.twin(other, 5) == first
    assert graph.twin(second, 7) is None, "7 leads to 5, which leads to 6"


@pytest.fixture(scope="module")
def heads():
    target = tiny_target()
    return {name: tiny_head(target, **options) for name, options in HEADS.items()}


def proposed(drafter, sampling):
    """The tree, and how many rows the head drafted for it."""
    rows = []
    session = drafter.start(prompt_of(IDS, FEATURES), sampling, KeyedNoise(sampling.seed))
    session.catch_up()
    watch = drafter.head.register_forward_hook(lambda head, inputs, output: rows.append(inputs[0].shape[1]))
    tree = session.propose(DraftRequest(CONFIG)).tree
    watch.remove()
    return tree, sum(rows)


@pytest.mark.parametrize("name", HEADS)
def test_fewer_rows_are_drafted_for_as_large_a_tree(heads, name):
    head = heads[name]
    for sampling in (SamplingParams(), SamplingParams(1.0, seed=4)):
        plain, plain_rows = proposed(HeadDrafter(head), sampling)
        same, same_rows = proposed(graph_drafter(head, shared=0), sampling)
        assert same.token_ids.tolist() == plain.token_ids.tolist() and same_rows == plain_rows
        torch.testing.assert_close(same.scores, plain.scores)
        drafter = graph_drafter(head, shared=1)
        merged, rows = proposed(drafter, sampling)
        assert_is_a_tree(merged)
        assert merged.num_nodes == plain.num_nodes and rows < plain_rows
        names = {drafter.proposers[place].id for place in merged.proposers.tolist()[1:]}
        assert "merged" in names


def test_what_is_taken_over_is_what_was_guessed_after_the_twin(heads):
    drafter = graph_drafter(heads["decoupled"], shared=1)
    tree, _ = proposed(drafter, SamplingParams())
    tokens, parents, merged = tree.token_ids.tolist(), tree.parents.tolist(), len(drafter.proposers) - 1
    guessed, taken_over = {}, {}
    for node in range(1, tree.num_nodes):
        found = taken_over if int(tree.proposers[node]) == merged else guessed
        found.setdefault((parents[node], tokens[parents[node]]), set()).add(tokens[node])
    assert taken_over
    for (_, token_id), children in taken_over.items():
        same = [each for (_, other), each in guessed.items() if other == token_id]
        assert any(children <= each or each <= children for each in same)
