"""Token Recycling beyond what every method keeps to: answers that are only written cannot be replayed with it."""

import pytest
import torch

from jakiro.training.evaluate import EvaluateConfig, evaluate
from lab.published.recycling import rank_tree


def test_written_answers_cannot_be_replayed_because_they_hold_no_logits():
    with pytest.raises(ValueError, match=r"^recycling learns from the target's logits, "):
        evaluate(EvaluateConfig(methods=("recycling",), methods_from=("lab.published",)))


def test_of_the_trees_that_visitors_ask_for_few_are_remembered():
    for width in range(1, 9):
        for depth in range(1, 17):
            rank_tree(depth, width, torch.device("cpu"))
    assert rank_tree.cache_info().currsize <= 64
