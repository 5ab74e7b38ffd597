"""Candidates before they are a tree: chains merged in, and a chain alone."""

import math

import torch

from jakiro.drafting.candidates import Candidates, Chain, best_tree
from tests.support import assert_is_a_tree


def candidates(token_ids: list[int], parents: list[int], depths: list[int], scores: list[float]) -> Candidates:
    columns = (torch.tensor(column) for column in (token_ids, parents, depths, scores))
    return Candidates.of(*columns)


def test_merging_names_both_proposers_and_appends_only_what_is_new():
    head = candidates([10, 11, 20, 21], [0, 0, 2, 2], [1, 1, 2, 2], [-1.0, -2.0, -2.5, -3.0])
    chain = Chain(torch.tensor([11, 21, 30]), torch.tensor([-0.5, -0.5, -0.5]), proposer=3)
    merged = head.merged_with(chain)
    assert merged.also.tolist() == [0, 0b1000, 0, 0b1000, 0, 0, 0]
    assert merged.proposers.tolist() == [0, 0, 0, 0, 3, 3, 3]
    assert merged.scores.tolist() == [-1.0, -0.5, -2.5, -1.0, -math.inf, -math.inf, -1.5]
    assert merged.token_ids[-1] == 30 and merged.parents[-1] == 4 and merged.depths[-1] == 3


def test_scores_that_are_no_numbers_are_the_least_and_no_node_loses_its_parent():
    nan = math.nan
    tokens, parents, depths = [10, 11, 20, 21, 30, 31], [0, 0, 1, 2, 3, 4], [1, 1, 2, 2, 3, 3]
    head = candidates(tokens, parents, depths, [nan, -1.0, nan, -2.0, nan, -3.0])
    tree = best_tree(torch.tensor([7]), head, 4, 3)
    assert_is_a_tree(tree)
    assert tree.token_ids.tolist() == [7, 10, 11, 21, 31] and not tree.scores.isnan().any()
    chain = Chain(torch.tensor([10, 20, 40]), torch.full((3,), -0.1), proposer=2)
    assert_is_a_tree(best_tree(torch.tensor([7]), head.merged_with(chain), 3, 3))
