"""Traces: JSON round trips, messages for invalid files, and metrics counted by hand."""

import copy
import functools
import json
import math
import operator
from dataclasses import replace

import pytest

from jakiro.system import assets_folder
from jakiro.trace import (
    Header,
    Node,
    Plan,
    Ranked,
    Scored,
    Step,
    Trace,
    TraceError,
    acceptance_by_depth,
    pooled_tau,
)

PROPOSERS = ("expert_0", "expert_1", "contrastive", "copied")


def node(token_id, parent=-1, depth=0, proposer="root", **values):
    return Node(
        **{
            "token_id": token_id,
            "piece": bytes([token_id % 256]),
            "parent": parent,
            "depth": depth,
            "draft_pass": depth,
            "score": -0.25 * depth,
            "draft_prob": 0.5 if depth else None,
            "target_prob": 0.25 if depth else None,
            "proposer": proposer,
            "also_proposed_by": ("copied",) if depth == 2 else (),
            "evidence": {"router_weights": (0.75, 0.25), "residual_contribution": (0.125,)} if depth else {},
            "target_choice": token_id + 1,
            "target_choice_piece": b"\xf0\x9f",
            "margin": 1e9,
            **values,
        }
    )


#        0
#      1   2
#     3 4
#     5
NODES = (
    node(10),
    node(11, 0, 1, "expert_0"),
    node(12, 0, 1, "expert_1"),
    node(13, 1, 2, "expert_1"),
    node(14, 1, 2, "expert_0"),
    node(15, 3, 3, "contrastive"),
)


def step(index, accepted_path, nodes=NODES, committed=None, milliseconds=(2.0, 5.0, 1.0), text="x"):
    ids = (*(nodes[i].token_id for i in accepted_path), 99)
    plan = Plan(3, len(nodes), "Because.", 1.5, 8.0, ((1, 20.0), (6, 31.5)), False)
    committed = ids if committed is None else committed
    return Step(index, nodes, accepted_path, 99, b"c", committed, text, *milliseconds, plan)


def header(**values):
    return Header(
        **{
            "method": "jakiro",
            "created": "2026-01-01T00:00:00+00:00",
            "bit_identical": True,
            "messages": ({"role": "user", "content": "“Why” – 世界?"},),
            "raw_prompt": None,
            "num_prompt_tokens": 12,
            "target": {"name": "t", "sha256": "a"},
            "drafter": {"name": "h", "sha256": "b"},
            "proposers": tuple({"id": name, "label": name, "sentence": ""} for name in PROPOSERS),
            "device": "cpu",
            "dtype": "float32",
            "numerics": "exact",
            "device_profile": {},
            "versions": {"jakiro": "0"},
            "sampling": {"temperature": 0.7},
            "tree": {"width": 3},
            "first_token_id": 10,
            "first_piece": b"\xff\x00",
            "first_text": "f",
            "prefill_ms": 40.0,
            "special_tokens": {"2": "<end>"},
            **values,
        }
    )


def trace():
    # Accepted 3, 0, 1, 2 candidates of a tree of three levels, then the root only; the last step is cut to one token
    steps = [
        step(0, (1, 3, 5)),
        step(1, ()),
        step(2, (2,)),
        step(3, (1, 4)),
        step(4, (), NODES[:1]),
        step(5, (1, 3), committed=(11,), text=""),
    ]
    return Trace(header(), steps, "length")


def test_a_trace_survives_json():
    original = trace()
    text = original.to_json()
    for again in (Trace.from_json(text), Trace.from_json(text.encode()), Trace.from_dict(json.loads(text))):
        assert again == original and again.to_json() == text
    assert again.steps[0].nodes[3].also_proposed_by == ("copied",)
    assert again.header.first_piece == b"\xff\x00"
    values = original.to_dict()
    assert values["header"]["first_piece"] == "ff00"
    assert values["steps"][0]["nodes"][0]["target_choice_piece"] == "f09f"


def test_minus_infinity_is_null_in_json_and_restored_when_read():
    impossible, possible = Scored(3, b"c", -math.inf), Scored(4, b"d", -0.5)
    head = header(first_alternatives=(Ranked(2, (impossible, possible)),), first_logprobs=(impossible,))
    text = Trace(head, [], "length").to_json()
    assert json.loads(text, parse_constant=pytest.fail)["header"]["first_logprobs"] == [[3, "63", None]]
    assert Trace.from_json(text) == Trace(head, [], "length")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_non_finite_number_is_written_as_null(number):
    values = trace().to_dict()
    values["steps"][0]["plan"]["expected_ms"] = number
    assert json.loads(Trace.from_dict(trace().to_dict()).to_json()) == trace().to_dict()
    changed = trace()
    changed.steps[0] = replace(changed.steps[0], plan=replace(changed.steps[0].plan, expected_ms=number))
    text = changed.to_json()
    assert json.loads(text, parse_constant=pytest.fail)["steps"][0]["plan"]["expected_ms"] is None
    assert Trace.from_json(text).steps[0].plan.expected_ms is None
    with pytest.raises(TraceError, match="expected a number, got "):
        Trace.from_dict(values)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_json_with_a_non_finite_constant_is_refused(constant):
    text = trace().to_json().replace('"prefill_ms":', f'"prefill_ms":{constant},"old":', 1)
    with pytest.raises(TraceError, match=f"it is not JSON \\({constant} is not a JSON number\\)"):
        Trace.from_json(text)


def test_metrics_counted_by_hand():
    folded = trace()
    assert folded.token_ids == [10, 11, 13, 15, 99, 99, 12, 99, 11, 14, 99, 99, 11]
    # Accepted lengths 3, 0, 1, 2, 0, 2: eight over six steps.
    assert folded.tau == pytest.approx(8 / 6 + 1)
    assert folded.decode_seconds == pytest.approx(6 * 0.008)
    assert folded.tokens_per_second == pytest.approx(12 / 0.048)
    assert folded.text == "xxxxx"
    assert pooled_tau([*folded.steps, *folded.steps[:1]]) == pytest.approx(11 / 7 + 1)
    assert pooled_tau([]) is None


def test_acceptance_by_depth_counts_only_depths_with_candidates_below_an_accepted_node():
    folded = trace()
    # Depth 1 is tested in the five drafted steps and accepted in four. Depth 2 requires node 1: it is tested in steps
    # 0, 3 and 5; step 2 accepted node 2, which has no children. Depth 3 requires node 3: it is tested in steps 0 and 5;
    # step 3 accepted the sibling of node 3.
    assert [s.tested_depth for s in folded.steps] == [3, 1, 1, 2, 0, 3]
    assert acceptance_by_depth(folded.steps) == [(4, 5), (3, 3), (1, 2)]
    assert acceptance_by_depth(folded.steps[4:5]) == [] and acceptance_by_depth([]) == []


LEFT_OUT = object()


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (["header"], LEFT_OUT, "the field “header” is missing."),
        (["header", "schema_version"], 99, "This trace uses format 99; this version reads 1."),
        (["header", "dtype"], LEFT_OUT, "a header lacks the field “dtype”."),
        (["steps", 1, "bonus_token_id"], LEFT_OUT, "a step lacks the field “bonus_token_id”."),
        (["steps", 1, "nodes", 2, "margin"], LEFT_OUT, "a node lacks the field “margin”."),
        (["steps", 0, "plan", "why"], LEFT_OUT, "a plan lacks the field “why”."),
        (["steps", 0, "nodes", 1, "piece"], "zz", "This file is not a trace: "),
        (["steps", 0, "nodes", 1, "evidence"], {"router_weights": ["much"]}, "expected a number, got 'much'."),
        (["steps", 0, "nodes"], None, "This file is not a trace: "),
        (["steps", 2, "index"], 5, "step 2 has the index 5."),
        (["steps", 2, "nodes"], [], "step 2 has no nodes."),
        (["steps", 0, "nodes", 3, "parent"], 4, "node 3 of step 0 does not fit its parent."),
        (["steps", 0, "nodes", 3, "depth"], 1, "node 3 of step 0 does not fit its parent."),
        (["steps", 0, "nodes", 0, "parent"], 0, "node 0 of step 0 does not fit its parent."),
        (["steps", 0, "accepted_path"], [1, 4, 5], "the accepted path of step 0 is not a path."),
        (["steps", 0, "accepted_path"], [0], "the accepted path of step 0 is not a path."),
        (["steps", 3, "verify_ms"], "fast", "expected a number, got 'fast'."),
        (["steps", 0, "bonus_token_id"], "7", "expected an integer, got '7'."),
        (["steps", 0, "nodes", 0, "token_id"], True, "expected an integer, got True."),
        (["steps", 0, "text"], 5, "expected a string, got 5."),
        (["header", "sampling"], [], "expected an object, got []."),
        (["header", "bit_identical"], 1, "expected true or false, got 1."),
    ],
)
def test_invalid_trace_is_refused_in_one_sentence(place, value, sentence):
    values = copy.deepcopy(trace().to_dict())
    *outer, last = place
    holder = functools.reduce(operator.getitem, outer, values)
    holder[last] = value
    if value is LEFT_OUT:
        del holder[last]
    with pytest.raises(TraceError) as caught:
        Trace.from_dict(values)
    message = str(caught.value)
    assert sentence in message and "\n" not in message
    assert message.startswith(("This file is not a trace: ", "This trace uses format "))


@pytest.mark.parametrize("text", ["", "{", "not json", b"\xff\xfe\x00", "[" * 100_000])
def test_invalid_json_is_refused_in_one_sentence(text):
    with pytest.raises(TraceError, match=r"^This file is not a trace: it is not JSON"):
        Trace.from_json(text)


RECORDINGS = sorted((assets_folder() / "traces").glob("*.json"))


@pytest.mark.anywhere
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_shipped_recordings_survive_a_round_trip(path):
    for name, values in json.loads(path.read_text(encoding="utf-8"))["traces"].items():
        read = Trace.from_dict(values)
        assert read.header.method == name
        assert read.to_dict() == values
        proposers = {proposer["id"] for proposer in read.header.proposers}
        assert {node.proposer for step in read.steps for node in step.nodes} <= proposers | {"root"}
