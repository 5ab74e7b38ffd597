"""Packed steps are plain JSON, small, and say nothing twice; a browser reads them in `browser/test_modules.py`."""

import json
from dataclasses import replace

import pytest

from app.serving.packing import Packer, pack_header, to_json
from jakiro.config import SamplingParams, TreeConfig
from jakiro.trace import Step
from tests.app.fake import FakeGenerator

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]


def steps_of(nodes: int, depth: int = 5):
    return list(FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig(nodes=nodes, depth=depth)))


def packer() -> Packer:
    packer = Packer()
    stream = FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig())
    packer.pack(("header", "jakiro", stream.trace.header))
    return packer


def packed(*steps: Step) -> list[dict]:
    """Steps as they stand in the JSON of one answer."""
    one = packer()
    return [json.loads(to_json(one.pack(("step", "jakiro", step))))[2] for step in steps]


def test_every_column_has_an_entry_for_each_node():
    step = steps_of(24)[0]
    (found,) = packed(step)
    assert all(len(column) == len(step.nodes) for column in found["nodes"].values())
    for name in ("token_id", "parent", "draft_pass", "target_choice"):
        assert found["nodes"][name] == [getattr(node, name) for node in step.nodes]
    for name in ("draft", "target"):
        chances = [getattr(node, f"{name}_prob") for node in step.nodes[1:]]
        assert found["nodes"][f"{name}_percent"][1:] == pytest.approx([100 * one for one in chances], abs=0.0006)
    assert found["nodes"]["score"] == pytest.approx([node.score for node in step.nodes], abs=0.0006)
    assert found["nodes"]["margin"] == pytest.approx([node.margin for node in step.nodes], rel=0.006, abs=0.05001)
    assert set(found["evidence"]) == {name for node in step.nodes for name in node.evidence}


def test_rows_of_evidence_stand_once_a_step():
    step = steps_of(24)[0]
    rows = packed(step)[0]["evidence"]["router_weights"]
    written = [row for row in rows if isinstance(row, list)]
    assert len(written) == len({node.evidence["router_weights"] for node in step.nodes[1:]}) < len(rows) - 1
    for node, row in zip(step.nodes, rows, strict=True):
        row = rows[row] if isinstance(row, int) else row  # an earlier node has the same
        assert row == (pytest.approx(node.evidence["router_weights"], rel=0.006) if node.evidence else None)


def test_what_no_view_shows_is_kept_with_four_decimals_to_compute_from():
    step = steps_of(4)[0]
    told = replace(step.nodes[1], margin=1.084167, evidence={"residual_contribution": (18.756014,)})
    step = replace(step, nodes=(step.nodes[0], told, *step.nodes[2:]))
    lesson, live = Packer(to_compute_from=True), packer()
    lesson.pack(
        ("header", "jakiro", FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig()).trace.header)
    )
    found, shown = (one.pack(("step", "jakiro", step))[2] for one in (lesson, live))
    assert found["evidence"]["residual_contribution"][1] == [18.756] and found["nodes"]["margin"][1] == 1.0842
    assert "residual_contribution" not in shown["evidence"] and shown["nodes"]["margin"][1] == 1.1


def test_what_mostly_follows_stands_only_where_it_does_not():
    steps = steps_of(24)
    for step, found in zip(steps, packed(*steps), strict=True):
        end = step.nodes[step.accepted_path[-1] if step.accepted_path else 0]
        whole = len(step.committed_ids) == len(step.accepted_path) + 1
        assert found.get("committed", len(step.accepted_path) + 1) == len(step.committed_ids)
        assert ("committed" in found) == (not whole)
        assert found.get("bonus_token_id", end.target_choice) == step.bonus_token_id
        assert ("also_proposed_by" in found) == any(node.also_proposed_by for node in step.nodes)


def test_a_plan_tells_what_the_step_before_did_not():
    first, *_ = steps_of(8)
    plan = replace(first.plan, nodes=5, curve=())
    found = packed(first, replace(first, index=1, plan=plan), replace(first, index=2, plan=plan), first)
    assert [step.get("plan") for step in found[1:3]] == [{"nodes": 5, "curve": []}, None]
    assert found[3]["plan"] == {name: found[0]["plan"][name] for name in ("nodes", "curve")}


def test_a_packed_header_reads_like_a_saved_trace():
    stream = FakeGenerator().stream(QUESTION, SamplingParams(seed=7), tree=TreeConfig())
    packed = json.loads(to_json(pack_header(stream.trace.header)))
    assert packed == json.loads(stream.trace.to_json())["header"]
