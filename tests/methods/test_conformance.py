"""What every drafting method keeps to, asked of all that are registered: a new one is tested the moment it is there."""

import json

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting.base import TreeLimits
from jakiro.engine.costs import DeviceProfile
from jakiro.methods import METHODS, PLAIN, method_named
from jakiro.trace import Trace
from tests.engine.test_meta_device import meta_by_default, reads_of_steps
from tests.graphs.static import static_generator
from tests.support import assert_is_a_tree, tiny_generator

QUESTION = "the cat sat on the mat; the cat sat on the mat; the cat sat"
SAMPLINGS = {
    "greedy": SamplingParams(max_new_tokens=32),
    "nucleus": SamplingParams(0.7, top_p=0.9, seed=5, max_new_tokens=32),
    "sampled": SamplingParams(1.0, seed=5, max_new_tokens=32),
}
FIXED = TreeConfig(width=5, depth=4, nodes=18)
COSTS = DeviceProfile(((1, 10.0), (64, 12.0)), ((1, 0.1), (8, 0.4)), width=8)


def heads_of(method) -> tuple[str, ...]:
    """Methods that draft with any layer do so with both fusions; the others bring their own head."""
    if "mixture" in method.needs.head:
        return "summed", "decoupled"
    return ("eagle3",) if "eagle3" in method.needs.head else ("summed",)


CASES = [
    pytest.param(method.name, head, id=f"{method.name}, {head}")
    for method in METHODS.values()
    for head in heads_of(method)
]
DRAFTING = [case for case in CASES if case.values[0] != PLAIN.name]


@pytest.fixture(scope="module")
def generators():
    return {head: tiny_generator(head) for head in ("summed", "decoupled", "eagle3")}


@pytest.fixture(scope="module")
def plain(generators):
    return {
        name: generators["summed"].run(QUESTION, sampling, PLAIN.name).token_ids for name, sampling in SAMPLINGS.items()
    }


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("method", "head"), CASES)
def test_it_writes_plain_decoding_s_text_in_trees_that_name_their_proposers(method, head, sampling, generators, plain):
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
    if METHODS[method] is not PLAIN:
        assert any(len(step.nodes) > 1 for step in trace.steps), "drafting took part"


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("method", "head"), CASES)
def test_trees_that_size_themselves_write_it_too(method, head, sampling, plain):
    generator = tiny_generator(head)
    generator.profile = COSTS
    trace = generator.run(QUESTION, SAMPLINGS[sampling], method, TreeConfig(nodes=32, depth=6, policy="auto"))
    assert trace.token_ids == plain[sampling]
    assert all(step.plan.why for step in trace.steps)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("method", "head"), CASES)
def test_it_runs_beside_or_inside_passes_of_fixed_shape(method, head, sampling, plain, without_compiled_functions):
    generator = static_generator(head)
    for tree in (FIXED, TreeConfig(nodes=32, depth=6, policy="auto")):
        assert generator.run(QUESTION, SAMPLINGS[sampling], method, tree).token_ids == plain[sampling]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("method", "head"), DRAFTING)
def test_a_draft_touches_neither_the_noise_nor_the_target_s_committed_rows(method, head, sampling, generators):
    stream = generators[head].stream(QUESTION, SAMPLINGS[sampling], method, FIXED)
    for _ in range(3):
        next(stream)
        runner = stream._runner
        length = runner.cache.length
        layers = runner.cache.layers
        rows = [(layer.keys[:, :, :length].clone(), layer.values[:, :, :length].clone()) for layer in layers]
        noise = runner.noise_rows.rows(length + 1, 6).clone()
        for limits in (TreeLimits(FIXED), TreeLimits(FIXED, sizes=(4, 8, 18))):
            proposal = stream._session.propose(limits)
            if proposal.tree is None:
                assert proposal.note
                continue
            assert_is_a_tree(proposal.tree)
            assert proposal.tree.num_nodes <= FIXED.nodes and int(proposal.tree.depths.max()) <= FIXED.depth
            assert int(proposal.tree.token_ids[0]) == stream.trace.token_ids[-1]
            if limits.sizes and proposal.forecast is not None:
                assert proposal.forecast.shape == (FIXED.depth, 3)
                assert (proposal.forecast.diff(dim=1) >= -1e-6).all(), "a larger tree promises no less"
        assert runner.cache.length == length
        for layer, (keys, values) in zip(layers, rows, strict=True):
            assert torch.equal(layer.keys[:, :, :length], keys) and torch.equal(layer.values[:, :, :length], values)
        assert torch.equal(runner.noise_rows.rows(length + 1, 6), noise)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("method", "head"), CASES)
def test_a_step_reads_from_the_device_once_and_assumes_no_device(method, head, sampling, generators, monkeypatch):
    stream = generators[head].stream(QUESTION, SAMPLINGS[sampling], method, FIXED)
    reads = reads_of_steps(stream, 4, monkeypatch)
    if METHODS[method].needs.host:
        assert all({"tolist"} == set(each) and each["tolist"] <= 2 + FIXED.depth for each in reads)
    else:
        assert reads == [{"tolist": 1}] * 4
    with meta_by_default():
        next(stream)


@pytest.mark.parametrize(("method", "head"), CASES)
def test_chains_only_is_kept_to(method, head, generators, monkeypatch):
    generator = generators[head]
    expected = generator.run(QUESTION, SAMPLINGS["sampled"], PLAIN.name).token_ids
    monkeypatch.setattr(generator.target, "chains_only", True)
    trace = generator.run(QUESTION, SAMPLINGS["sampled"], method, FIXED)
    assert trace.token_ids == expected
    for step in trace.steps:
        assert [node.parent for node in step.nodes] == list(range(-1, len(step.nodes) - 1))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_it_says_what_it_is(method):
    assert method.title and method.sentence.endswith(".")
    assert method is PLAIN or method.proposers
    for name in (method.name, *method.aliases):
        assert method_named(name) is method
    json.dumps(method.to_dict())


def test_names_and_aliases_are_distinct():
    names = [name for method in METHODS.values() for name in (method.name, *method.aliases)]
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match=r"Unknown method 'nope'; choose one of autoregressive, "):
        method_named("nope")
