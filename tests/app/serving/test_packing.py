"""Packed steps are small, and say nothing twice; what a browser reads of them is in `browser/test_modules.py`."""

import json
from dataclasses import replace

import pytest

from app.serving.packing import DIGITS, SEPARATOR, Packer, pack_column, pack_header, pack_piece, to_json
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


def packer() -> Packer:
    packer = Packer()
    stream = FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig())
    packer.pack(("header", "jakiro", stream.trace.header))
    return packer


def size(step) -> int:
    """Bytes of a step that is the first of its answer, so that no token of it is known."""
    return len(to_json(packer().pack(("step", "jakiro", step))).encode())


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


def test_tokens_and_sentences_travel_once_an_answer():
    one, steps = packer(), steps_of(24)
    packed = [one.pack(("step", "jakiro", step))[2] for step in steps]
    sent = []
    for _, pieces, _, _ in packed:
        sent += pieces if isinstance(pieces, list) else pieces.split(SEPARATOR) if pieces else []
    wanted = {(node.token_id, node.piece) for step in steps for node in step.nodes}
    wanted |= {(node.target_choice, node.target_choice_piece) for step in steps for node in step.nodes}
    wanted |= {(step.bonus_token_id, step.bonus_piece) for step in steps}
    assert sorted(sent, key=str) == sorted((pack_piece(piece) for _, piece in wanted), key=str)
    names = [name for _, _, names, _ in packed for name in names]
    said = {node.proposer for step in steps for node in step.nodes} | {step.plan.why for step in steps}
    assert len(names) == len(set(names)) and set(names) == said


def test_bytes_that_are_no_text_travel_as_hex():
    assert pack_piece("🌍".encode()) == "🌍"
    assert pack_piece(b"\xf0\x9f") == ["f09f"]
    assert pack_piece(b"") == ""


def test_a_packed_header_reads_like_a_saved_trace():
    stream = FakeGenerator().stream(QUESTION, SamplingParams(seed=7), tree=TreeConfig())
    packed = json.loads(to_json(pack_header(stream.trace.header)))
    assert packed == json.loads(stream.trace.to_json())["header"]
