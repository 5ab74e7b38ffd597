"""GSD: twins of candidates, an acyclic graph, fewer drafted rows, and a tree for the target."""

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.base import DraftRequest
from jakiro.drafters.head import HeadDrafter
from lab.methods.gsd import RunGraph, graph_drafter
from lab.tests.published.test_mcsd import started
from tests.support import HEADS, assert_is_a_tree

CONFIG = TreeConfig(8, 5, 200, contrastive=False)


def test_a_twin_ends_in_the_same_tokens_in_another_branch():
    graph = RunGraph(1, shared=2)
    first, second = graph.add(0, 5), graph.add(0, 6)
    third = graph.add(first, 7)
    assert graph.twin(second, 7) is None, "6 7 was never drafted"
    sibling = graph.add(second, 5)
    assert graph.twin(sibling, 7) == third, "5 7 was"
    assert graph.twin(sibling, 6) is None


def test_a_node_is_not_a_twin_of_its_descendants():
    graph = RunGraph(1, shared=1)
    first = graph.add(0, 5)
    assert graph.twin(first, 5) is None, "5 after 5 would follow itself"
    second = graph.add(first, 6)
    assert graph.twin(second, 5) is None, "5 6 5 would close a cycle"
    sibling = graph.add(0, 7)
    assert graph.twin(sibling, 5) == first
    assert graph.twin(second, 7) is None, "a path leads from 7 to 5 to 6"


def proposed(drafter, sampling):
    """Return the tree and the number of rows that the head drafted for it."""
    rows = []
    session = started(drafter, sampling)
    session.catch_up()
    watch = drafter.head.register_forward_hook(lambda head, inputs, output: rows.append(inputs[0].shape[1]))
    tree = session.propose(DraftRequest(CONFIG)).tree
    watch.remove()
    return tree, sum(rows)


@pytest.mark.parametrize("name", HEADS)
def test_fewer_rows_are_drafted_for_a_tree_of_the_same_size(heads, name):
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


def test_reused_candidates_equal_those_after_the_twin(heads):
    drafter = graph_drafter(heads["decoupled"], shared=1)
    tree, _ = proposed(drafter, SamplingParams())
    tokens, parents, merged = tree.token_ids.tolist(), tree.parents.tolist(), len(drafter.proposers) - 1
    guessed, taken_over = {}, {}
    for node in range(1, tree.num_nodes):
        branches = taken_over if int(tree.proposers[node]) == merged else guessed
        branches.setdefault((parents[node], tokens[parents[node]]), set()).add(tokens[node])
    assert taken_over
    for (_, token_id), children in taken_over.items():
        same = [continuations for (_, last_id), continuations in guessed.items() if last_id == token_id]
        assert any(children <= continuations or continuations <= children for continuations in same)
