"""What every drafting method keeps to, asked of all that are registered: a new one is tested the moment it is there.

A method from outside is asked the same: a module of tests that imports everything from here and sets `KNOWN` and
`SUBJECTS` to its own.
"""

import functools
import json
import math
from dataclasses import replace

import pytest
import torch

from jakiro.config import Grammar, SamplingParams, TreeConfig
from jakiro.decode.device_profile import DeviceProfile
from jakiro.drafters.base import Drafter, DraftRequest
from jakiro.drafters.registry import METHODS, PLAIN
from jakiro.heads.base import DraftHead
from jakiro.trace import Trace
from tests.backends.static import static_generator
from tests.support import assert_is_a_tree, heads_of, tiny_generator

QUESTION = "the cat sat on the mat; the cat sat on the mat; the cat sat"
SAMPLINGS = {
    "greedy": SamplingParams(max_new_tokens=32),
    "nucleus": SamplingParams(0.7, top_p=0.9, seed=5, max_new_tokens=32),
    "sampled": SamplingParams(1.0, seed=5, max_new_tokens=32),
}
# Each setting that looks at the text before a token, and one that looks at all
RULES = {
    "min-p": {"min_p": 0.1},
    "repetition": {"repetition_penalty": 1.3},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.8},
    "runs": {"no_repeat_ngram_size": 1},
    "bias": {"logit_bias": {101: 6.0, 32: -4.0}},
    "suppressed": {"suppress_tokens": tuple(range(0, 240, 3))},
    "grammar": {"grammar": Grammar("regex", "(the cat|a dog) [a-z]{2,9}( sat| ran)+[.!]")},
    "all": {
        "top_p": 0.95, "top_k": 60, "min_p": 0.01, "repetition_penalty": 1.1, "frequency_penalty": 0.2,
        "presence_penalty": 0.1, "no_repeat_ngram_size": 3, "logit_bias": {101: 2.0}, "suppress_tokens": (100,),
        "grammar": Grammar("regex", "[a-z ]+[.!]"),
    },
}  # fmt: skip
FIXED, SIZED = TreeConfig(width=5, depth=4, nodes=18), TreeConfig(nodes=32, depth=6, policy="auto")
COSTS = DeviceProfile(((1, 10.0), (64, 12.0)), ((1, 0.1), (8, 0.4)))
# The methods that there are, and those of them that are asked
KNOWN = METHODS
SUBJECTS = tuple(METHODS.values())
# Methods that read scores on the host after each level, which on a GPU waits for the device each time
READ_ON_HOST = frozenset()
# Reads of the first step: the first tree of a drafter from outside the package is checked on the host
FIRST_STEP_READS = 1


def pytest_generate_tests(metafunc):
    """A case for each method, as "subject", as "headed" where it needs a head, as the name "method" with a head, or
    "drafting" but for plain decoding; with a "sampling" where one is asked for.

    How the text is chosen does not meet how a head mixes its experts, so the second fusion decodes in one way.
    """
    cases = [
        pytest.param(method.name, head, id=f"{method.name}, {head}")
        for method in metafunc.module.SUBJECTS
        for head in heads_of(method)
    ]
    asked = set(metafunc.fixturenames)
    names = [name for name in ("method", "drafting") if {name, "head"} <= asked]
    if names and "sampling" in asked:
        cases = [
            pytest.param(*case.values, sampling, id=f"{case.id}-{sampling}")
            for case in cases
            for sampling in (("nucleus",) if case.values[1] == "decoupled" else SAMPLINGS)
        ]
    for name in names:
        drafting = [case for case in cases if name == "method" or case.values[0] != PLAIN.name]
        metafunc.parametrize((name, "head", *(asked & {"sampling"})), drafting)
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("subject", metafunc.module.SUBJECTS, ids=lambda method: method.name)
    if "headed" in metafunc.fixturenames:
        # A small model has no weights of a head's
        headed = [
            method for method in metafunc.module.SUBJECTS if {*method.needs.head} & {*metafunc.module.KNOWN.kinds}
        ]
        metafunc.parametrize("headed", headed, ids=lambda method: method.name)


@pytest.fixture(scope="module")
def known(request):
    return request.module.KNOWN


@pytest.fixture(scope="module")
def generators(known):
    """Their costs are given, so that trees size themselves where they are asked to, and nothing is timed."""
    generators = {head: tiny_generator(head, methods=known) for head in ("summed", "decoupled", "eagle3", "dflash")}
    for generator in generators.values():
        generator.profile = COSTS
    return generators


@pytest.fixture(scope="module")
def at_fixed_addresses(known):
    """Makes a generator in slots once for each head, inside a test that has the compiled functions off."""
    return functools.cache(lambda head: static_generator(head, measured=True, methods=known))


@pytest.fixture(scope="module")
def plain_under(generators):
    """Settings with one of `RULES`, and plain decoding's text under them."""

    @functools.cache
    def asked(rule, temperature):
        sampling = SamplingParams(temperature, seed=5, max_new_tokens=12, **RULES[rule])
        text = generators["summed"].run(QUESTION, sampling, PLAIN.name).token_ids
        free = generators["summed"].run(QUESTION, SamplingParams(temperature, seed=5, max_new_tokens=12), PLAIN.name)
        assert text != free.token_ids or rule in ("min-p", "presence", "frequency"), "the setting changes the text"
        return sampling, text

    return asked


@pytest.fixture(scope="module")
def plain(generators):
    return {
        name: generators["summed"].run(QUESTION, sampling, PLAIN.name).token_ids for name, sampling in SAMPLINGS.items()
    }


def test_it_writes_plain_decoding_s_text_in_trees_that_name_their_proposers(
    method, head, sampling, generators, plain, known
):  # fmt: skip
    trace = generators[head].run(QUESTION, SAMPLINGS[sampling], method, FIXED)
    assert trace.token_ids == plain[sampling]
    assert trace.header.method == method
    named = {proposer["id"] for proposer in trace.header.proposers}
    assert all(proposer["label"] and proposer["sentence"] for proposer in trace.header.proposers)
    for step in trace.steps:
        siblings = [(node.parent, node.token_id) for node in step.nodes]
        assert len(set(siblings)) == len(siblings) <= FIXED.nodes
        assert step.nodes[0].proposer == "root"
        assert {node.proposer for node in step.nodes[1:]} | set().union(
            *(node.also_proposed_by for node in step.nodes)
        ) <= named
        assert all(node.proposer not in node.also_proposed_by for node in step.nodes)
        assert all(node.score <= step.nodes[node.parent].score + 1e-6 for node in step.nodes[1:])
    assert Trace.from_json(trace.to_json()) == trace
    json.dumps(trace.to_dict(), allow_nan=False)
    if known[method] is not PLAIN:
        assert any(len(step.nodes) > 1 for step in trace.steps), "drafting took part"


@pytest.mark.parametrize("temperature", [0, pytest.param(1, marks=pytest.mark.rare)])
@pytest.mark.parametrize("rule", RULES)
def test_every_setting_leaves_it_plain_decoding_s_text(method, head, rule, temperature, generators, plain_under):
    sampling, text = plain_under(rule, temperature)
    trace = generators[head].run(QUESTION, sampling, method, FIXED)
    assert trace.token_ids == text
    assert Trace.from_json(trace.to_json()) == trace
    named = {node.forbidden_by for step in trace.steps for node in step.nodes}
    assert named <= {None, "no_repeat_ngram_size", "suppress_tokens", "grammar"}


def test_trees_that_size_themselves_write_it_too(method, head, generators, plain):
    trace = generators[head].run(QUESTION, SAMPLINGS["nucleus"], method, SIZED)
    assert trace.token_ids == plain["nucleus"]
    assert all(step.plan.why for step in trace.steps)


def test_it_runs_beside_or_inside_passes_of_fixed_shape(
    method, head, plain, at_fixed_addresses, without_compiled_functions
):
    """With top-p; in other ways tests/backends/test_buffers.py chooses there."""
    generator = at_fixed_addresses(head)
    for tree in (FIXED, SIZED):
        assert generator.run(QUESTION, SAMPLINGS["nucleus"], method, tree).token_ids == plain["nucleus"]


def test_a_draft_touches_neither_the_noise_nor_the_target_s_committed_rows(drafting, head, sampling, generators):
    stream = generators[head].stream(QUESTION, SAMPLINGS[sampling], drafting, FIXED)
    for _ in range(3):
        next(stream)
        runner = stream._backend
        length = runner.cache.length
        layers = runner.cache.layers
        rows = [(layer.keys[:, :, :length].clone(), layer.values[:, :, :length].clone()) for layer in layers]
        noise = runner.noise_rows.rows(length + 1, 6).clone()
        proposal = stream._session.propose(DraftRequest(FIXED))
        if proposal.tree is None:
            assert proposal.note
        else:
            assert_is_a_tree(proposal.tree)
            assert proposal.tree.num_nodes <= FIXED.nodes and int(proposal.tree.depths.max()) <= FIXED.depth
            assert int(proposal.tree.token_ids[0]) == stream.trace.token_ids[-1]
        assert runner.cache.length == length
        for layer, (keys, values) in zip(layers, rows, strict=True):
            assert torch.equal(layer.keys[:, :, :length], keys) and torch.equal(layer.values[:, :, :length], values)
        assert torch.equal(runner.noise_rows.rows(length + 1, 6), noise)


def test_a_step_reads_from_the_device_once_and_makes_no_tensor_elsewhere(
    method, head, known, request, on_a_pretended_gpu
):
    """On a pretended GPU, in passes that grow with the text."""
    later_reads = 2 + FIXED.depth if method in request.module.READ_ON_HOST else 1
    with on_a_pretended_gpu as tags:
        stream = tiny_generator(head, methods=known).stream(QUESTION, SAMPLINGS["nucleus"], method, FIXED)
        for max_reads in (max(later_reads, request.module.FIRST_STEP_READS), *[later_reads] * 3):
            tags.reads.clear()
            next(stream)
            assert {*tags.reads} == {"tolist"}
            assert tags.reads["tolist"] <= max_reads


def test_chains_only_is_kept_to(method, head, generators, plain, monkeypatch):
    """Also in trees deeper than the head has levels, or than they have nodes."""
    generator = generators[head]
    # A small model that drafts is tried with trees as it is loaded
    generator.drafter(generator.known_methods.named(method))
    monkeypatch.setattr(type(generator.target), "chains_only", True)
    for tree in (FIXED, replace(FIXED, depth=7), replace(FIXED, nodes=3)):
        trace = generator.run(QUESTION, SAMPLINGS["sampled"], method, tree)
        assert trace.token_ids == plain["sampled"]
        for step in trace.steps:
            assert [node.parent for node in step.nodes] == list(range(-1, len(step.nodes) - 1))


def test_it_says_what_it_is_and_shares_no_name_no_kind_of_head_and_no_network(subject, known):
    assert subject.title and subject.sentence.endswith(".")
    assert subject is PLAIN or subject.proposers
    for name in (subject.name, *subject.aliases):
        assert known.named(name) is subject
    json.dumps(subject.to_dict())
    with pytest.raises(ValueError, match="Two drafting methods are called"):
        known.with_further([subject])
    if subject.trains is not None:
        other = replace(subject, name="another", aliases=())
        with pytest.raises(ValueError, match=f"another and {subject.name} both register draft heads of kind "):
            known.with_further([other])


def test_an_unknown_name_is_refused_with_all_that_there_are(known):
    with pytest.raises(ValueError, match=r"Unknown method 'nope'; choose one of autoregressive, "):
        known.named("nope")


def test_an_answer_without_an_end_in_sight_takes_no_more_room_than_the_target_can_fill(subject, known):
    generator = tiny_generator(heads_of(subject)[0], methods=known)
    sampling = SamplingParams(max_new_tokens=10**9)
    stream = generator.stream("Go on for ever.", sampling, subject.name, FIXED)
    next(stream)
    assert stream.trace.header.sampling["max_new_tokens"] == 10**9
    stream.close()


def head_of(drafter: Drafter) -> DraftHead:
    """The first head that a drafter, or one of those that it is made of, drafts with."""
    parts = [part for each in vars(drafter).values() for part in (each if isinstance(each, tuple) else [each])]
    found = [part for part in parts if isinstance(part, DraftHead)]
    return found[0] if found else next(head_of(part) for part in parts if isinstance(part, Drafter))


def test_a_head_with_damaged_weights_changes_no_text_and_leaves_traces_that_can_be_read(headed, known, generators):
    """A row of its first matrix or of its last one, in trees of a fixed size and in those that choose it."""
    damaged, sampling = (
        tiny_generator(heads_of(headed)[0], methods=known),
        SamplingParams(1.0, seed=3, max_new_tokens=9),
    )
    damaged.profile = COSTS
    text = generators["summed"].run(QUESTION, sampling, PLAIN.name).token_ids
    own = [weight for weight in head_of(damaged.drafter(headed)).parameters() if weight.ndim == 2]
    for weight, number in ((own[0], math.inf), (own[-1], 3e38)):
        kept, weight[0] = weight[0].clone(), number
        for tree in (FIXED, TreeConfig(policy="auto", nodes=16, depth=4)):
            trace = damaged.run(QUESTION, sampling, headed.name, tree)
            assert trace.token_ids == text
            assert Trace.from_json(trace.to_json()) == trace
        weight[0] = kept
