"""Packed steps are plain and small JSON without repetitions; `browser/test_modules.py` unpacks them in a browser."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import replace

from app.serving.packing import Packer, pack_header, to_json
from jakiro.config import SamplingParams, TreeConfig
from jakiro.trace import Header, Step
from tests.app.fake import QUESTION, FakeGenerator


def packed(packer: Packer, header: Header, steps: Iterable[Step]) -> list[list]:
    packer.pack(("header", "jakiro", header))
    return [packer.pack(("step", "jakiro", step)) for step in steps]


def test_a_packed_step_of_new_words_is_small():
    pieces = [b" token%04d" % number for number in range(2000)]
    params = SamplingParams(max_new_tokens=len(pieces))
    stream = FakeGenerator(pieces).stream(QUESTION, params, tree=TreeConfig(nodes=24, depth=5))
    steps = itertools.islice(stream, 500)
    assert max(len(to_json(step)) for step in packed(Packer(), stream.trace.header, steps)) <= 2700


def test_values_to_compute_from_are_packed_with_four_decimals():
    stream = FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig(nodes=4, depth=5))
    step = next(stream)
    node = replace(step.nodes[1], margin=1.084167, evidence={"residual_contribution": (18.756014,)})
    step = replace(step, nodes=(step.nodes[0], node, *step.nodes[2:]))
    precise, rounded = (
        packed(packer, stream.trace.header, [step])[0][2] for packer in (Packer(to_compute_from=True), Packer())
    )
    assert precise["evidence"]["residual_contribution"][1] == [18.756] and precise["nodes"]["margin"][1] == 1.0842
    assert "residual_contribution" not in rounded["evidence"] and rounded["nodes"]["margin"][1] == 1.1


def test_a_packed_header_reads_like_a_saved_trace():
    stream = FakeGenerator().stream(QUESTION, SamplingParams(seed=7), tree=TreeConfig())
    packed = json.loads(to_json(pack_header(stream.trace.header)))
    assert packed == json.loads(stream.trace.to_json())["header"]
