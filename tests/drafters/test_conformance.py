"""Rules for every drafting method, tested with all registered methods; a new method is tested once it is registered.

Methods outside the package are tested in the same way, by a test module that imports everything from this one and sets
`KNOWN` and `SUBJECTS`.
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
from tests.marks import rarely
from tests.support import assert_is_a_tree, heads_of, tiny_generator

QUESTION = "the cat sat on the mat; the cat sat on the mat; the cat sat"
SAMPLINGS = {
    "greedy": SamplingParams(max_new_tokens=32),
    "nucleus": SamplingParams(0.7, top_p=0.9, seed=5, max_new_tokens=32),
    "sampled": SamplingParams(1.0, seed=5, max_new_tokens=32),
}
# Each logits processor, and all of them together
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
# All registered methods, and the methods under test
KNOWN = METHODS
SUBJECTS = tuple(METHODS.values())
# Methods that read values on the host after each level, which blocks on a GPU
READ_ON_HOST = frozenset()
# Reads of the first step: the first tree of a drafter from outside the package is checked on the host
FIRST_STEP_READS = 1


def pytest_generate_tests(metafunc):
    """Parametrize a test by the names of its fixtures.

    "subject" is a method, "headed" a method with a draft head; "method" and "head" are the names of a method and a
    head, "drafting" excludes plain decoding, and "sampling" is a key of `SAMPLINGS`.

    The second fusion runs with one sampling only: the choice of tokens does not depend on how a head mixes its experts.
    """
    cases = [
        pytest.param(method.name, head, id=f"{method.name}, {head}")
        for method in metafunc.module.SUBJECTS
        for head in heads_of(method)
    ]
    fixtures = set(metafunc.fixturenames)
    names = [name for name in ("method", "drafting") if {name, "head"} <= fixtures]
    if names and "sampling" in fixtures:
        cases = [
            pytest.param(*case.values, sampling, id=f"{case.id}-{sampling}")
            for case in cases
            for sampling in (("nucleus",) if case.values[1] == "decoupled" else SAMPLINGS)
        ]
    for name in names:
        drafting = [case for case in cases if name == "method" or case.values[0] != PLAIN.name]
        metafunc.parametrize((name, "head", *(fixtures & {"sampling"})), drafting)
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("subject", metafunc.module.SUBJECTS, ids=lambda method: method.name)
    if "headed" in metafunc.fixturenames:
        # A draft model has no weights of a head
        headed = [
            method for method in metafunc.module.SUBJECTS if {*method.needs.head} & {*metafunc.module.KNOWN.kinds}
        ]
        metafunc.parametrize("headed", headed, ids=lambda method: method.name)


@pytest.fixture(scope="module")
def methods(request):
    return request.module.KNOWN


@pytest.fixture(scope="module")
def generators(methods):
    """Return generators with preset costs, so that automatic tree sizes do not depend on timings."""
    generators = {head: tiny_generator(head, methods=methods) for head in ("summed", "decoupled", "eagle3", "dflash")}
    for generator in generators.values():
        generator.profile = COSTS
    return generators


@pytest.fixture(scope="module")
def at_fixed_addresses(methods):
    """Return a function that makes one generator with static buffers per head; its test disables compiled functions."""
    return functools.cache(lambda head: static_generator(head, measured=True, methods=methods))


@pytest.fixture(scope="module")
def plain_under(generators):
    """Return a function from a name in `RULES` and a temperature to the sampling settings and plain decoding's tokens.

    It fails if the rule does not change the text, except for rules that need not.
    """

    @functools.cache
    def settings_and_tokens(rule, temperature):
        sampling = SamplingParams(temperature, seed=5, max_new_tokens=12, **RULES[rule])
        text = generators["summed"].run(QUESTION, sampling, PLAIN.name).token_ids
        free = generators["summed"].run(QUESTION, SamplingParams(temperature, seed=5, max_new_tokens=12), PLAIN.name)
        assert text != free.token_ids or rule in ("min-p", "presence", "frequency"), "the setting must change the text"
        return sampling, text

    return settings_and_tokens


@pytest.fixture(scope="module")
def plain(generators):
    return {
        name: generators["summed"].run(QUESTION, sampling, PLAIN.name).token_ids for name, sampling in SAMPLINGS.items()
    }


def test_text_equals_plain_decoding_and_trees_name_their_proposers(
    method, head, sampling, generators, plain, methods
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
    if methods[method] is not PLAIN:
        assert any(len(step.nodes) > 1 for step in trace.steps), "drafting took part"


@pytest.mark.parametrize("temperature", [0, rarely(1)])
@pytest.mark.parametrize("rule", RULES)
def test_text_equals_plain_decoding_with_every_setting(method, head, rule, temperature, generators, plain_under):
    sampling, text = plain_under(rule, temperature)
    trace = generators[head].run(QUESTION, sampling, method, FIXED)
    assert trace.token_ids == text
    assert Trace.from_json(trace.to_json()) == trace
    named = {node.forbidden_by for step in trace.steps for node in step.nodes}
    assert named <= {None, "no_repeat_ngram_size", "suppress_tokens", "grammar"}


def test_text_equals_plain_decoding_with_automatic_tree_sizes(method, head, generators, plain):
    trace = generators[head].run(QUESTION, SAMPLINGS["nucleus"], method, SIZED)
    assert trace.token_ids == plain["nucleus"]
    assert all(step.plan.why for step in trace.steps)


def test_text_equals_plain_decoding_with_static_buffers(
    method, head, plain, at_fixed_addresses, without_compiled_functions
):
    """Tested with top-p; tests/backends/test_buffers.py has the other settings."""
    generator = at_fixed_addresses(head)
    for tree in (FIXED, SIZED):
        assert generator.run(QUESTION, SAMPLINGS["nucleus"], method, tree).token_ids == plain["nucleus"]


def test_drafting_changes_neither_the_noise_nor_the_committed_rows_of_the_target(drafting, head, sampling, generators):
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


def test_step_reads_from_the_device_once_and_creates_no_tensor_elsewhere(
    method, head, methods, request, on_a_pretended_gpu
):
    """Runs growing passes on a simulated GPU."""
    later_reads = 2 + FIXED.depth if method in request.module.READ_ON_HOST else 1
    with on_a_pretended_gpu as tags:
        stream = tiny_generator(head, methods=methods).stream(QUESTION, SAMPLINGS["nucleus"], method, FIXED)
        for max_reads in (max(later_reads, request.module.FIRST_STEP_READS), *[later_reads] * 3):
            tags.reads.clear()
            next(stream)
            assert {*tags.reads} == {"tolist"}
            assert tags.reads["tolist"] <= max_reads


def test_drafts_are_chains_if_the_target_requires_it(method, head, generators, plain, monkeypatch):
    """Includes trees deeper than the head has levels, or deeper than they have nodes."""
    generator = generators[head]
    # Loading a draft model includes a trial with trees
    generator.drafter(generator.known_methods.named(method))
    monkeypatch.setattr(type(generator.target), "chains_only", True)
    for tree in (FIXED, replace(FIXED, depth=7), replace(FIXED, nodes=3)):
        trace = generator.run(QUESTION, SAMPLINGS["sampled"], method, tree)
        assert trace.token_ids == plain["sampled"]
        for step in trace.steps:
            assert [node.parent for node in step.nodes] == list(range(-1, len(step.nodes) - 1))


def test_method_has_a_description_and_unique_names_and_kind_of_head(subject, methods):
    assert subject.title and subject.sentence.endswith(".")
    assert subject is PLAIN or subject.proposers
    for name in (subject.name, *subject.aliases):
        assert methods.named(name) is subject
    json.dumps(subject.to_dict())
    with pytest.raises(ValueError, match="Two drafting methods are called"):
        methods.with_further([subject])
    if subject.trains is not None:
        duplicate = replace(subject, name="another", aliases=())
        with pytest.raises(ValueError, match=f"another and {subject.name} both register draft heads of kind "):
            methods.with_further([duplicate])


def test_unknown_name_is_refused_with_all_registered_names(methods):
    with pytest.raises(ValueError, match=r"Unknown method 'nope'; choose one of autoregressive, "):
        methods.named("nope")


def test_request_without_a_practical_limit_fits_into_the_context(subject, methods):
    generator = tiny_generator(heads_of(subject)[0], methods=methods)
    sampling = SamplingParams(max_new_tokens=10**9)
    stream = generator.stream("Go on for ever.", sampling, subject.name, FIXED)
    next(stream)
    assert stream.trace.header.sampling["max_new_tokens"] == 10**9
    stream.close()


def head_of(drafter: Drafter) -> DraftHead:
    """Return the first draft head of a drafter or of one of its parts."""
    parts = [part for value in vars(drafter).values() for part in (value if isinstance(value, tuple) else [value])]
    heads = [part for part in parts if isinstance(part, DraftHead)]
    return heads[0] if heads else next(head_of(part) for part in parts if isinstance(part, Drafter))


def test_head_with_damaged_weights_keeps_the_text_and_writes_valid_traces(headed, methods, generators):
    """Damage a row of its first and of its last matrix, with trees of fixed and of automatic size."""
    damaged, sampling = (
        tiny_generator(heads_of(headed)[0], methods=methods),
        SamplingParams(1.0, seed=3, max_new_tokens=9),
    )
    damaged.profile = COSTS
    text = generators["summed"].run(QUESTION, sampling, PLAIN.name).token_ids
    matrices = [weight for weight in head_of(damaged.drafter(headed)).parameters() if weight.ndim == 2]
    for weight, number in ((matrices[0], math.inf), (matrices[-1], 3e38)):
        original, weight[0] = weight[0].clone(), number
        for tree in (FIXED, TreeConfig(policy="auto", nodes=16, depth=4)):
            trace = damaged.run(QUESTION, sampling, headed.name, tree)
            assert trace.token_ids == text
            assert Trace.from_json(trace.to_json()) == trace
        weight[0] = original
