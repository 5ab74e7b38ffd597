"""A step's nodes say what its one read brought, each in its own field."""

import math

import pytest

from jakiro.core.verify import Outcome
from jakiro.engine.recorder import nodes_from
from jakiro.trace import Node


class Letters:
    """Token 0 is a, token 1 is b, …"""

    def piece(self, token_id):
        return b"abcdefgh"[token_id : token_id + 1]


def test_every_field_of_a_node_is_its_own_column():
    outcome = Outcome(
        token_ids=[0, 1],
        parents=[-1, 0],
        depths=[0, 1],
        scores=[0.0, -0.7],
        draft_passes=[0, 2],
        draft_probs=[math.nan, 0.3],
        proposers=[-1, 1],
        also=[0, 0b101],
        target_probs=[math.nan, 0.4],
        choices=[1, 3],
        margins=[0.5, math.inf],
        evidence={"weights": [[math.nan, math.nan], [0.6, 0.8]], "residual": [[math.nan], [0.9]]},
        accepted_path=[1],
        bonus_token_id=3,
        needs_full_sort=False,
    )
    root, child = nodes_from(outcome, Letters(), ["x", "y", "z"])
    assert root == Node(0, b"a", -1, 0, 0, 0.0, None, None, "root", (), {}, 1, b"b", 0.5)
    evidence = {"weights": (0.6, 0.8), "residual": (0.9,)}
    assert child == Node(1, b"b", 0, 1, 2, -0.7, 0.3, 0.4, "y", ("x", "z"), evidence, 3, b"d", 1e9)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_no_number_of_a_node_is_one_that_json_has_not(number):
    outcome = Outcome(
        *([0, 1], [-1, 0], [0, 1], [0.0, number], [0, 1], [math.nan, number], [-1, 0], [0, 0]),
        *([math.nan, number], [1, 3], [number, number]),
        evidence={"weights": [[math.nan, math.nan], [0.5, number]], "residual": [[math.nan], [0.9]]},
        accepted_path=[1],
        bonus_token_id=3,
        needs_full_sort=False,
    )
    _, child = nodes_from(outcome, Letters(), ["x"])
    assert (child.draft_prob, child.target_prob) == (None, None)
    assert child.evidence == {"residual": (0.9,)}
    assert all(map(math.isfinite, (child.score, child.margin)))
    assert child.score == (1e9 if number == math.inf else -1e9)
