"""Token Recycling: replay without logits, and bounded caches."""

import pytest
import torch

from jakiro.training.evaluate import EvaluateConfig, evaluate
from lab.published.recycling import rank_tree


def test_written_answers_without_logits_cannot_be_replayed():
    with pytest.raises(ValueError, match=r"^recycling learns from the target's logits, "):
        evaluate(EvaluateConfig(methods=("recycling",), methods_from=("lab.published",)))


def test_the_cache_of_trees_is_bounded():
    for width in range(1, 9):
        for depth in range(1, 17):
            rank_tree(depth, width, torch.device("cpu"))
    assert rank_tree.cache_info().currsize <= 64
