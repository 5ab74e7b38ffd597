"""Packed steps are small, exact in what is counted, and readable by a browser."""

import json

import pytest

from app.packing import pack_header, pack_piece, pack_step, to_json
from jakiro.config import SamplingParams, TreeConfig
from tests.app.fake import FakeGenerator

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]


def steps_of(nodes: int, depth: int = 5):
    return list(FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig(nodes=nodes, depth=depth)))


@pytest.mark.parametrize("nodes", [1, 8, 24, 32])
def test_packed_steps_stay_under_three_kilobytes(nodes):
    assert max(len(to_json(pack_step(step)).encode()) for step in steps_of(nodes)) <= 3072


def test_a_packed_step_keeps_every_id_parent_and_path():
    for step in steps_of(24):
        packed = json.loads(to_json(pack_step(step)))
        ids = [packed["T"][place][0] for place in packed["t"]]
        assert ids == [node.token_id for node in step.nodes]
        assert [packed["T"][place][0] for place in packed["c"]] == [node.target_choice for node in step.nodes]
        assert packed["p"] == [node.parent for node in step.nodes]
        assert packed["path"] == list(step.accepted_path)
        assert packed["n"] == len(step.committed_ids)
        assert [packed["O"][place] for place in packed["o"]] == [node.proposer for node in step.nodes]


def test_bytes_that_are_no_text_travel_as_hex():
    assert pack_piece("🌍".encode()) == "🌍"
    assert pack_piece(b"\xf0\x9f") == ["f09f"]
    assert pack_piece(b"") == ""


def test_a_packed_header_reads_like_a_saved_trace():
    stream = FakeGenerator().stream(QUESTION, SamplingParams(seed=7), tree=TreeConfig())
    packed = json.loads(to_json(pack_header(stream.trace.header)))
    assert packed == json.loads(stream.trace.to_json())["header"]
