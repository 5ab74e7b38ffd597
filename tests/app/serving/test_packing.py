"""Packed steps are plain JSON, small, and say nothing twice; a browser reads them in `browser/test_modules.py`."""

import json
from dataclasses import replace

from app.serving.packing import Packer, pack_header, to_json
from jakiro.config import SamplingParams, TreeConfig
from tests.app.fake import FakeGenerator

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]


def steps_of(nodes: int, depth: int = 5):
    return list(FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig(nodes=nodes, depth=depth)))


def packer() -> Packer:
    packer = Packer()
    stream = FakeGenerator().stream(QUESTION, SamplingParams(), tree=TreeConfig())
    packer.pack(("header", "jakiro", stream.trace.header))
    return packer


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


def test_a_packed_header_reads_like_a_saved_trace():
    stream = FakeGenerator().stream(QUESTION, SamplingParams(seed=7), tree=TreeConfig())
    packed = json.loads(to_json(pack_header(stream.trace.header)))
    assert packed == json.loads(stream.trace.to_json())["header"]
