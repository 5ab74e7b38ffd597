"""Nodes have only numbers that JSON supports. tests/core/test_verify.py checks which field each number is in."""

import math
from unittest.mock import Mock

import pytest

from jakiro.core.verify import Outcome
from jakiro.decode.recorder import make_nodes


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_of_a_node_are_finite(number):
    outcome = Outcome(
        *([0, 1], [-1, 0], [0, 1], [0.0, number], [0, 1], [math.nan, number], [-1, 0], [0, 0]),
        *([math.nan, number], [1, 3], [number, number]),
        evidence={"weights": [[math.nan, math.nan], [0.5, number]], "residual": [[math.nan], [0.9]]},
        accepted_path=[1],
        bonus_token_id=3,
        needs_full_sort=False,
    )
    _, child = make_nodes(outcome, Mock(), ["x"])
    assert (child.draft_prob, child.target_prob) == (None, None)
    assert child.evidence == {"residual": (0.9,)}
    assert all(map(math.isfinite, (child.score, child.margin)))
    assert child.score == (1e9 if number == math.inf else -1e9)
