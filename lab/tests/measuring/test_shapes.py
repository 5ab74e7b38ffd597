"""Lanes of the measurement of trees and chains, on a tiny pair, and the order of any lanes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from jakiro.prompts import load_questions
from lab.measuring import lanes, shapes
from tests.support import tiny_generator


def test_another_lane_is_first_in_each_turn_and_different_texts_are_an_error():
    def answer(lane):
        order.append(lane)
        return SimpleNamespace(token_ids=[len(lane)], text=lane), {"turn": turn}

    for turn, expected in enumerate((["ab", "cd"], ["cd", "ab"], ["ab", "cd"])):
        order = []
        assert lanes.alternate(["ab", "cd"], turn, answer, "") == {"ab": {"turn": turn}, "cd": {"turn": turn}}
        assert order == expected
    with pytest.raises(RuntimeError, match=r"differ at edit 3: \{'ab': \[2\], 'abc': \[3\]\}"):
        lanes.alternate(["ab", "abc"], 0, answer, "edit 3")


def test_a_chain_drafts_one_node_per_level_and_every_lane_writes_the_same_text(monkeypatch):
    generator, drawn = tiny_generator(), {}
    run = generator.run

    def recorded(question, sampling, method, tree):
        trace = run(question, sampling, method, tree)
        sizes = {(len(step.nodes), max(node.depth for node in step.nodes)) for step in trace.steps}
        drawn.setdefault((tree.nodes, tree.width, tree.policy), set()).update(sizes)
        return trace

    monkeypatch.setattr(generator, "run", recorded)
    short = [replace(question, turns=(question.turns[0][:40],)) for question in load_questions(limit=2)]
    monkeypatch.setattr(lanes, "load_questions", lambda limit: short[:limit])
    answers = shapes.measure(generator, 2, 12, (1.0,))
    assert len(answers) == 2 * len(shapes.LANES)
    assert max(drawn[8, 1, "fixed"]) == (8, 7) and all(nodes == depth + 1 for nodes, depth in drawn[8, 1, "fixed"])
    assert max(drawn[8, 8, "fixed"])[0] == 8 and any(nodes > depth + 1 for nodes, depth in drawn[8, 8, "fixed"])
    *_, every, _, speedup = shapes.table(answers, 1.0).splitlines()
    assert every.startswith("| all | 1.00 |") and speedup.startswith("| speedup | 1.00 |")
