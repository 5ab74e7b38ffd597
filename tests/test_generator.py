"""The decoding loop: steps of a stream, end reasons, and consistency of ids, text and metrics."""

import copy
from dataclasses import replace

import pytest

from jakiro.config import SamplingParams, TreeConfig
from jakiro.decode.device_profile import DeviceProfile
from jakiro.decode.tree_budget import TreeBudget
from jakiro.drafters.registry import WITH_COPIES
from jakiro.trace import Trace
from tests.support import (
    TREE,
    prompt_ids,
    reference_answer,
    tiny_generator,
    tiny_model,
)

QUESTION = "Why is the sky blue?"
LENGTH = 18
SAMPLINGS = [
    replace(sampling, max_new_tokens=LENGTH)
    for sampling in (SamplingParams(), SamplingParams(1.0, seed=6), SamplingParams(0.8, top_p=0.9, seed=7))
]


def assert_consistent(trace, generator):
    """Check that the text and the tokens of a trace follow from its steps."""
    token_ids = trace.token_ids
    assert trace.text == generator.token_text.decode(token_ids)
    if trace.steps:
        assert "".join(step.text for step in trace.steps) == trace.text
    else:
        assert trace.header.first_text == trace.text
    expected_ids = [trace.header.first_token_id]
    for index, step in enumerate(trace.steps):
        assert step.index == index
        assert step.nodes[0].token_id == expected_ids[-1] and step.nodes[0].proposer == "root"
        uncut = (*(step.nodes[node].token_id for node in step.accepted_path), step.bonus_token_id)
        assert step.committed_ids == uncut[: len(step.committed_ids)]
        assert step.committed_ids == uncut or index == len(trace.steps) - 1
        path = [0, *step.accepted_path]
        assert [step.nodes[node].target_choice for node in path] == list(uncut)
        assert step.plan.nodes == len(step.nodes) and step.plan.levels == max(node.depth for node in step.nodes)
        assert min(step.draft_ms, step.verify_ms, step.other_ms) >= 0
        expected_ids += step.committed_ids
    assert token_ids == expected_ids
    assert trace.decode_seconds == pytest.approx(sum(step.total_ms for step in trace.steps) / 1000)
    assert Trace.from_json(trace.to_json()) == trace


def cut_inside_a_block(trace):
    return bool(trace.steps) and len(trace.steps[-1].committed_ids) < len(trace.steps[-1].accepted_path) + 1


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled", "nucleus"])
def test_the_token_limit_cuts_ids_text_and_metrics_together_inside_a_block(scripted, sampling):
    expected, inside = reference_answer(tiny_model(), prompt_ids(QUESTION), sampling), 0
    for limit in range(1, LENGTH + 1):
        for method in ("jakiro", "autoregressive")[: 2 if limit % 6 == 1 else 1]:
            trace = scripted.run(QUESTION, replace(sampling, max_new_tokens=limit), method=method, tree=TREE)
            assert (trace.token_ids, trace.end_reason) == (expected[:limit], "length")
            assert_consistent(trace, scripted)
            inside += cut_inside_a_block(trace)
            if trace.decode_seconds:
                assert trace.tokens_per_second == pytest.approx((limit - 1) / trace.decode_seconds)
    assert inside > 3


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled", "nucleus"])
def test_stop_token_ends_the_answer_at_any_position_in_a_block(scripted, monkeypatch, sampling):
    expected, inside = reference_answer(tiny_model(), prompt_ids(QUESTION), sampling), 0
    for index, token_id in enumerate(expected):
        monkeypatch.setattr(scripted.target, "stop_ids", frozenset({token_id}))
        for method in ("jakiro", "autoregressive")[: 2 if index % 6 == 0 else 1]:
            trace = scripted.run(QUESTION, sampling, method=method, tree=TREE)
            assert trace.token_ids == expected[: expected.index(token_id) + 1]
            assert trace.end_reason == "eos"
            assert_consistent(trace, scripted)
            assert bool(trace.steps) == (index > 0 and token_id != expected[0])
            inside += cut_inside_a_block(trace)
    assert inside > 3


@pytest.mark.parametrize("method", ["jakiro", "autoregressive"])
def test_an_answer_that_ends_with_the_prefill_has_no_steps(scripted, monkeypatch, method):
    first = scripted.run(QUESTION, SamplingParams(max_new_tokens=1), method=method)
    assert (first.steps, first.end_reason, len(first.token_ids)) == ([], "length", 1)
    assert first.tau is None and first.tokens_per_second is None and first.decode_seconds == 0
    assert_consistent(first, scripted)
    monkeypatch.setattr(scripted.target, "stop_ids", frozenset(first.token_ids))
    stopped = scripted.stream(QUESTION, SamplingParams(max_new_tokens=9), method=method)
    assert stopped.finished and list(stopped) == []
    assert (stopped.trace.end_reason, stopped.trace.token_ids) == ("eos", first.token_ids)
    assert_consistent(stopped.trace, scripted)


@pytest.mark.parametrize("method", ["jakiro", "autoregressive"])
@pytest.mark.parametrize("num_free", [0, 1, 2, 7])
def test_context_length_ends_an_answer_before_the_token_limit(scripted, method, num_free):
    overhead = len(prompt_ids("x")) - 1
    question = "a" * (256 - overhead - num_free)
    prompt = prompt_ids(question)
    assert len(prompt) == 256 - num_free
    trace = scripted.run(question, SamplingParams(max_new_tokens=40), method=method, tree=TREE)
    assert trace.end_reason == "context"
    assert trace.token_ids == reference_answer(tiny_model(), prompt, SamplingParams(max_new_tokens=num_free + 1))
    assert_consistent(trace, scripted)
    exact = scripted.run(question, SamplingParams(max_new_tokens=num_free + 1), method=method, tree=TREE)
    assert (exact.end_reason, exact.token_ids) == ("length", trace.token_ids)


def test_closing_a_stream_stops_it_and_keeps_the_decoded_tokens(scripted):
    complete = scripted.run(QUESTION, SamplingParams(max_new_tokens=LENGTH), tree=TREE)
    stream = scripted.stream(QUESTION, SamplingParams(max_new_tokens=LENGTH), tree=TREE)
    seen = [next(stream), next(stream)]
    stream.close()
    assert list(stream) == [] and stream.trace.steps == seen
    assert stream.trace.end_reason == "stopped"
    assert stream.trace.token_ids == complete.token_ids[: len(stream.trace.token_ids)]
    Trace.from_json(stream.trace.to_json())
    done = scripted.stream(QUESTION, SamplingParams(max_new_tokens=2), tree=TREE)
    list(done)
    done.close()
    assert done.trace.end_reason == "length"


def test_header_describes_the_run(generator):
    sampling, messages = SamplingParams(0.5, 0.9, 7, 11, 5), [{"role": "user", "content": QUESTION}]
    before = copy.deepcopy(messages)
    header = generator.run(messages, sampling, tree=TREE).header
    assert messages == before
    assert (header.method, header.messages, header.raw_prompt) == ("jakiro", tuple(messages), None)
    assert header.num_prompt_tokens == len(prompt_ids(QUESTION))
    assert (header.target["name"], header.drafter) == ("tiny", {"name": "tiny summed", "sha256": "1" * 64})
    assert (header.dtype, header.numerics) == ("float32", "exact")
    assert header.bit_identical == generator.target.bit_identical
    assert SamplingParams(**header.sampling) == sampling and TreeConfig(**header.tree) == TREE
    assert header.first_piece == generator.token_text.piece(header.first_token_id)
    assert header.prefill_ms > 0
    plain = generator.run(messages, sampling, method="autoregressive").header
    named = tuple(proposer["id"] for proposer in header.proposers)
    assert named == ("expert_0", "expert_1", "contrastive") and plain.proposers == ()
    assert plain.drafter is None and TreeConfig(**plain.tree).root_only
    assert plain.first_token_id == header.first_token_id


def test_tree_budget_learns_accepted_counts_of_planned_trees_only(monkeypatch):
    learned, update = [], TreeBudget.update

    def record_update(self, plan, accepted, *rest):
        learned.append(accepted)
        update(self, plan, accepted, *rest)

    monkeypatch.setattr(TreeBudget, "update", record_update)
    generator = tiny_generator("decoupled")
    generator.profile = DeviceProfile(((1, 10.0), (64, 11.0)), ((1, 0.1), (8, 0.8)))
    tree = TreeConfig(width=4, depth=6, nodes=24, policy="auto")
    text = "the cat sat on the mat; the cat sat on the mat; the cat sat on"
    trace = generator.run(text, SamplingParams(max_new_tokens=40), WITH_COPIES.name, tree)
    assert any(step.plan.why.startswith("Copied") for step in trace.steps)
    # A plan without expectations belongs to a tree that was not planned
    planned = [step.plan.expected_tokens is not None for step in trace.steps]
    assert set(planned) == {False, True}
    for step, as_planned, accepted in zip(trace.steps, planned, learned, strict=True):
        assert accepted == (len(step.accepted_path) if as_planned else None)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ([{"temperature": 0.7}], {}, "got {'temperature': 0.7}; pass sampling=SamplingParams(temperature=0.7)."),
        (["jakiro"], {}, "got 'jakiro'; pass a method as method='jakiro', in a race as methods=['jakiro']."),
        ([], {"tree": {"nodes": 4}}, "tree must be a TreeConfig; got {'nodes': 4}; pass tree=TreeConfig(nodes=4)."),
        ([], {"tree": 16}, "tree must be a TreeConfig; got 16; pass tree=TreeConfig(nodes=16)."),
        ([0.7], {}, "sampling must be a SamplingParams; got 0.7; pass sampling=SamplingParams(…)."),
        ([], {"temperature": 0.7}, "is a setting of SamplingParams; pass sampling=SamplingParams(temperature=0.7)."),
        ([], {"nodes": 4}, "nodes is a setting of TreeConfig; pass tree=TreeConfig(nodes=4)."),
        ([], {"prefix": 1}, "prefix is no option; choose one of raw, prefixes, template_arguments, "),
    ],
)
@pytest.mark.parametrize("call", ["stream", "run", "race"])
def test_an_argument_of_a_wrong_type_or_name_is_answered_with_what_to_pass(
    generator, call, arguments, options, sentence
):
    with pytest.raises(TypeError) as error:
        getattr(generator, call)(QUESTION, *arguments, **options)
    assert sentence in str(error.value)


def test_a_race_of_one_name_is_answered_with_what_to_pass(generator):
    with pytest.raises(TypeError, match=r"methods must be several names; got 'jakiro'; pass methods=\['jakiro'\]"):
        generator.race(QUESTION, methods="jakiro")
