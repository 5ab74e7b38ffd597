"""Losslessness: plain decoding equals the reference decoder, and every drafter keeps the text of plain decoding."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jakiro.config import SamplingParams, TreeConfig
from jakiro.trace import Trace
from tests.marks import often, rarely
from tests.support import (
    HEADS,
    assert_drafting_took_part,
    prompt_ids,
    reference_answer,
    scripted_generator,
    tiny_generator,
    tiny_model,
)

PROMPTS = st.one_of(
    st.sampled_from(["Why is the sky blue?", "aaaaaaaaaaaaaaaa", "2 + 2 =", "naïve 世界 🧪"]),
    st.text(min_size=1, max_size=30).filter(str.strip),
)
SAMPLINGS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0, 0.3, 0.7, 1.0, 1.6, 2.0]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.7, 0.3]),
    top_k=st.sampled_from([0, 0, 1, 5, 40, 300]),
    seed=st.integers(0, 2**63 - 1),
    max_new_tokens=st.integers(1, 24),
    min_p=st.sampled_from([0, 0, 0, 0.05, 0.5]),
    repetition_penalty=st.sampled_from([1, 1, 1, 1.1, 1.9, 0.7]),
    presence_penalty=st.sampled_from([0, 0, 0, 1.5, -0.5]),
    frequency_penalty=st.sampled_from([0, 0, 0, 0.7, 2]),
    no_repeat_ngram_size=st.sampled_from([0, 0, 0, 1, 2, 3]),
    logit_bias=st.sampled_from([(), (), {5: 4.0, 77: -3.0}]),
    suppress_tokens=st.sampled_from([(), (), tuple(range(0, 200, 3))]),
)
TREES = st.builds(
    TreeConfig,
    width=st.integers(1, 8),
    depth=st.integers(1, 6),
    nodes=st.integers(2, 32),
    shared_noise=st.booleans(),
)
REPETITIVE = [
    "one two three one two three one two three one two",
    "abababababababababab",
    "Repeat after me: la la la la la la la",
]


@settings(max_examples=40)
@given(PROMPTS, SAMPLINGS)
@example("Why is the sky blue?", SamplingParams(max_new_tokens=40))
@example("Why is the sky blue?", SamplingParams(temperature=0.7, top_p=0.9, seed=2**63 - 1, max_new_tokens=40))
def test_plain_decoding_equals_the_reference_decoder(generator, prompt, sampling):
    expected = reference_answer(tiny_model(), prompt_ids(prompt), sampling, generator.target.stop_ids)
    assert generator.run(prompt, sampling, method="autoregressive").token_ids == expected


def test_jakiro_with_a_scripted_drafter_equals_plain_decoding_and_drafting_takes_part():
    generators, drafted = [scripted_generator(error_rate) for error_rate in (0.0, 0.2, 0.6, 1.0)], []

    @settings(max_examples=60)
    @given(st.sampled_from(generators), PROMPTS, SAMPLINGS, TREES)
    def check(generator, prompt, sampling, tree):
        trace = generator.run(prompt, sampling, tree=tree)
        assert trace.token_ids == generator.run(prompt, sampling, method="autoregressive").token_ids
        drafted.extend(trace.steps)

    check()
    assert_drafting_took_part(drafted)


@pytest.mark.parametrize("head", often(("summed", "decoupled"), HEADS))
def test_jakiro_with_a_head_equals_plain_decoding(head):
    generator, drafted = tiny_generator(head), []

    @settings(max_examples=16)
    @given(PROMPTS, SAMPLINGS, TREES)
    def check(prompt, sampling, tree):
        trace = generator.run(prompt, sampling, tree=tree)
        assert trace.token_ids == generator.run(prompt, sampling, method="autoregressive").token_ids
        drafted.extend(trace.steps)

    check()
    assert any(step.accepted_path for step in drafted)
    assert any(len(step.accepted_path) < step.tested_depth for step in drafted)


@pytest.mark.parametrize("head", ["summed", rarely("decoupled, reduced vocabulary")])
def test_copied_chains_change_the_trees_but_not_the_text(head):
    generator, steps = tiny_generator(head), []

    @settings(max_examples=16)
    @given(st.sampled_from(REPETITIVE), SAMPLINGS, TREES, st.sampled_from(["jakiro+prompt_lookup", "context"]))
    @example(REPETITIVE[0], SamplingParams(max_new_tokens=20), TreeConfig(2, 2, 40), "jakiro+prompt_lookup")
    @example(REPETITIVE[1], SamplingParams(0.3, max_new_tokens=30), TreeConfig(1, 4, 64), "jakiro+prompt_lookup")
    def check(prompt, sampling, tree, method):
        trace = generator.run(prompt, sampling, method=method, tree=tree)
        assert trace.token_ids == generator.run(prompt, sampling, method="autoregressive").token_ids
        assert Trace.from_json(trace.to_json()) == trace
        for step in trace.steps:
            siblings = [(node.parent, node.token_id) for node in step.nodes]
            assert len(set(siblings)) == len(siblings), "siblings must be distinct"
        steps.extend(trace.steps)

    check()
    assert any(node.proposer == "copied" for step in steps for node in step.nodes)


def test_ranking_without_shared_noise_changes_the_trees_but_not_the_text(generator):
    sampling = SamplingParams(temperature=1.0, seed=5, max_new_tokens=24)
    with_noise = generator.run("Tell me.", sampling, tree=TreeConfig())
    without = generator.run("Tell me.", sampling, tree=TreeConfig(shared_noise=False))
    assert with_noise.token_ids == without.token_ids
    assert [node.token_id for node in with_noise.steps[0].nodes] != [node.token_id for node in without.steps[0].nodes]


def test_fast_numerics_give_the_same_text_in_float32(without_compiled_functions):
    exact = scripted_generator()
    fast = scripted_generator(numerics="fast")
    for sampling in (SamplingParams(max_new_tokens=40), SamplingParams(temperature=0.8, seed=3, max_new_tokens=40)):
        expected = exact.run("Tell me.", sampling).token_ids
        assert fast.run("Tell me.", sampling).token_ids == expected
        assert fast.run("Tell me.", sampling, method="autoregressive").token_ids == expected
