"""Packed steps are small, exact in what is counted, and readable by a browser."""

import json
from dataclasses import replace

import pytest

from app.packing import DIGITS, SEPARATOR, pack_column, pack_header, pack_piece, pack_step, to_json
from jakiro.config import SamplingParams, TreeConfig
from tests.app.fake import FakeGenerator

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]


def steps_of(nodes: int, depth: int = 5):
    return list(FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig(nodes=nodes, depth=depth)))


def unpacked(text: str, count: int) -> list[int]:
    width = len(text) // count
    digits = [DIGITS.index(character) for character in text]
    parts = [digits[start : start + width] for start in range(0, len(digits), width)]
    return [sum(digit * len(DIGITS) ** (width - 1 - place) for place, digit in enumerate(part)) for part in parts]


def size(step) -> int:
    return len(to_json(pack_step(step)).encode())


@pytest.mark.parametrize("nodes", [1, 8, 24, 40, 64])
def test_packed_steps_stay_under_three_kilobytes(nodes):
    assert max(size(step) for step in steps_of(nodes, depth=8)) <= 3072


def test_a_step_with_a_hundred_different_tokens_stays_under_three_kilobytes():
    step = steps_of(64, depth=8)[0]
    nodes = tuple(
        replace(
            node,
            token_id=49_000 + i,
            piece=b" tok%02d" % i,
            target_choice=48_000 + i % 36,
            target_choice_piece=b" c%03d" % (i % 36),
        )
        for i, node in enumerate(step.nodes)
    )
    assert size(replace(step, nodes=nodes)) <= 3072


@pytest.mark.parametrize("largest", [0, 90, 91, 8280, 8281, 100_001])
def test_columns_are_as_wide_as_their_largest_number_needs(largest):
    values = [0, largest, largest // 2]
    assert unpacked(pack_column(values), 3) == values
    assert json.dumps(pack_column(range(91))).count("\\") == 0


def test_a_packed_step_keeps_every_id_parent_and_path():
    for step in steps_of(24):
        packed = json.loads(to_json(pack_step(step)))
        table = unpacked(
            packed["T"], len(packed["U"].split(SEPARATOR) if isinstance(packed["U"], str) else packed["U"])
        )
        assert [table[place] for place in unpacked(packed["t"], 24)] == [node.token_id for node in step.nodes]
        assert [table[place] for place in unpacked(packed["c"], 24)] == [node.target_choice for node in step.nodes]
        assert [above - 1 for above in unpacked(packed["p"], 24)] == [node.parent for node in step.nodes]
        assert packed["path"] == list(step.accepted_path)
        assert packed["n"] == len(step.committed_ids)
        assert [packed["O"][place] for place in unpacked(packed["o"], 24)] == [node.proposer for node in step.nodes]


def test_bytes_that_are_no_text_travel_as_hex():
    assert pack_piece("🌍".encode()) == "🌍"
    assert pack_piece(b"\xf0\x9f") == ["f09f"]
    assert pack_piece(b"") == ""


def test_a_packed_header_reads_like_a_saved_trace():
    stream = FakeGenerator().stream(QUESTION, SamplingParams(seed=7), tree=TreeConfig())
    packed = json.loads(to_json(pack_header(stream.trace.header)))
    assert packed == json.loads(stream.trace.to_json())["header"]
