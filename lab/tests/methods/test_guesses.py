"""Candidates on the host: joining a chain to them, the path of the best ones, and as tensors."""

import torch

from lab.methods.best import best_path, with_chain
from lab.published.aded import Guess, candidates_of


def tree():
    """Two guesses below the root, one of them with a child."""
    root = Guess(0, 0.0)
    first, second = Guess(5, -1.0, depth=1, parent=root), Guess(6, -2.0, depth=1, parent=root)
    return [first, second, Guess(7, -1.5, depth=2, parent=first)]


def test_a_chain_joins_what_is_there_and_goes_on_alone():
    found = with_chain(tree(), [6, 8, 9], [-0.5, -0.25, -0.25], 3)
    assert [(each.token_id, each.score, each.proposer, each.also) for each in found] == [
        (5, -1.0, 0, 0), (6, -0.5, 0, 8), (7, -1.5, 0, 0), (8, -0.75, 3, 0), (9, -1.0, 3, 0),
    ]  # fmt: skip
    assert [each.token_id for each in best_path(found)] == [6, 8, 9]
    candidates = candidates_of(found, torch.device("cpu"))
    assert candidates.parents.tolist() == [0, 0, 1, 2, 4] and candidates.depths.tolist() == [1, 1, 2, 2, 3]
    assert candidates.proposers.tolist() == [0, 0, 0, 3, 3] and candidates.also.tolist() == [0, 8, 0, 0, 0]
