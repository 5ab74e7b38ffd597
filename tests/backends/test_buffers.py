"""Passes with static buffers equal sliced passes node by node, and keep their addresses."""

import threading
from dataclasses import replace

import pytest

from jakiro.backends.cuda_graphs.buffers import MOST_DRAFT_ROWS, MOST_NODES, GraphBuffers
from jakiro.backends.cuda_graphs.cache import columns_for
from jakiro.backends.torch_backend import TorchSession
from jakiro.config import Grammar, SamplingParams, TreeConfig
from jakiro.drafters.base import Proposal
from jakiro.drafters.head import HeadSession
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN
from tests.backends.static import (
    SMALL_COLUMNS,
    shape_of,
    static_generator,
    static_scripted_generator,
)
from tests.support import HEADS, SAMPLINGS, TREE, assert_drafting_took_part, scripted_generator, tiny_generator

pytestmark = pytest.mark.usefixtures("without_compiled_functions")

SAMPLED = SamplingParams(1.0, seed=3, max_new_tokens=24)


# The choice of tokens does not depend on the structure of a head
CASES = [(head, sampling) for head in ("summed", "dflash") for sampling in SAMPLINGS]
CASES += [(head, "sampled") for head in HEADS if head != "summed"]


@pytest.mark.parametrize(("head", "sampling"), CASES)
def test_trees_and_text_of_a_head_equal_sliced_passes(head, sampling):
    method = head if head in METHODS else None
    expected = tiny_generator(head).run("Tell me.", SAMPLINGS[sampling], method, TREE)
    trace = static_generator(head).run("Tell me.", SAMPLINGS[sampling], method, TREE)
    assert shape_of(trace) == shape_of(expected)
    for step, expected_step in zip(trace.steps, expected.steps, strict=True):
        for node, twin in zip(step.nodes, expected_step.nodes, strict=True):
            assert node.score == pytest.approx(twin.score, abs=1e-4)
            assert node.evidence.keys() == twin.evidence.keys()
            for name, numbers in node.evidence.items():
                assert numbers == pytest.approx(twin.evidence[name], abs=1e-4, nan_ok=True)
            assert node.margin == pytest.approx(twin.margin, abs=1e-3)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_accepted_paths_are_compacted_as_in_a_sliced_cache(numerics, sampling):
    expected = scripted_generator(numerics=numerics).run("Tell me.", sampling, tree=TREE)
    trace = static_scripted_generator(numerics=numerics).run("Tell me.", sampling, tree=TREE)
    assert shape_of(trace) == shape_of(expected)
    assert_drafting_took_part(trace.steps)


def test_text_over_several_column_steps_equals_sliced_passes():
    sampling, prompt = SamplingParams(1.0, seed=5, max_new_tokens=400), "Go on. " * 12
    trace = static_generator().run(prompt, sampling, tree=TREE)
    assert shape_of(trace) == shape_of(tiny_generator().run(prompt, sampling, tree=TREE))
    assert trace.end_reason == "context"
    columns = {columns_for(trace.header.num_prompt_tokens + count, SMALL_COLUMNS) for count in range(150)}
    assert len(columns) > 1 and len(trace.token_ids) >= 120
    assert max(len(step.accepted_path) for step in trace.steps) > 1


RULES = {
    "counted": {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.3, "logit_bias": {7: 3.0}},
    "filtered": {"min_p": 0.05, "suppress_tokens": tuple(range(0, 200, 3)), "top_k": 90},
    "host": {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
    "grammar": {"grammar": Grammar("regex", "[a-z ]{6,20}[.!]"), "suppress_tokens": (100,)},
}


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("rule", RULES)
def test_trees_and_text_with_every_setting_equal_sliced_passes(
    rule, temperature, static, generator, monkeypatch
):  # fmt: skip
    """Answers use the same buffers one after another, so the counts of one must not affect the next.

    Captured drafts are ranked without logits processors, so the sliced ones are here, too.
    """
    monkeypatch.setattr(HeadSession, "_add_draft_bias", lambda session, noise, *rest: noise)
    sampling = SamplingParams(temperature, seed=3, max_new_tokens=16, **RULES[rule])
    for method in ("jakiro", "autoregressive"):
        expected = generator.run("Tell me.", sampling, method, TREE)
        trace = static.run("Tell me.", sampling, method, TREE)
        assert shape_of(trace) == shape_of(expected)
        forbidden = [[node.forbidden_by for node in step.nodes] for step in trace.steps]
        assert forbidden == [[node.forbidden_by for node in step.nodes] for step in expected.steps]
        assert (
            trace.token_ids
            != generator.run("Tell me.", SamplingParams(temperature, seed=3, max_new_tokens=16)).token_ids
        )


@pytest.fixture(scope="module")
def static():
    return static_generator()


def test_reread_step_equals_sliced_passes():
    sampling = SamplingParams(2.0, top_p=0.99, max_new_tokens=6)
    trace = static_scripted_generator(vocab_size=1500).run("Tell me.", sampling, tree=TREE)
    assert any(step.plan.reread for step in trace.steps)
    assert shape_of(trace) == shape_of(scripted_generator(vocab_size=1500).run("Tell me.", sampling, tree=TREE))


def test_stopped_or_deleted_stream_returns_its_buffers():
    generator = static_generator()
    stopped = generator.stream("Why?", SAMPLED, tree=TREE)
    next(stopped)
    assert not generator.backend.pool._free
    stopped.close()
    assert len(generator.backend.pool._free) == 1
    forgotten = generator.stream("Why?", SAMPLED, tree=TREE)
    assert not generator.backend.pool._free
    del forgotten
    assert len(generator.backend.pool._free) == 1


def test_answer_that_exceeds_the_buffers_runs_without_graphs_with_the_same_text():
    generator = static_generator(tokens=60)
    short, long, wide = SamplingParams(max_new_tokens=4), SamplingParams(max_new_tokens=90), TreeConfig(8, 8, nodes=100)
    for sampling, tree, slots in ((short, TREE, 1), (long, TREE, 1), (short, wide, 1), (short, TREE, 1)):
        expected = tiny_generator().run("Why?", sampling, tree=tree)
        assert shape_of(generator.run("Why?", sampling, tree=tree)) == shape_of(expected)
        assert generator.status["graphs"]["slots"] == slots
    assert generator.backend.num_rejected == 2
    assert any("up to 60 tokens" in notice for notice in generator.status["notices"])
    again = static_generator(tokens=60)
    again.with_numerics("fast").run("Why?", long, tree=TREE)
    assert again.status["notices"] == generator.status["notices"], "notices must not depend on the numerics"


def test_pending_rows_of_many_plain_steps_reach_the_head():
    """Run more root-only steps than one pass can read, then a tree; it equals that of a head that read every step."""
    generator = static_generator()
    plain = generator.stream("Why?", SamplingParams(max_new_tokens=60), tree=TREE)
    sliced = tiny_generator().stream("Why?", SamplingParams(max_new_tokens=60), tree=TREE)
    for stream in (plain, sliced):
        propose = stream._propose
        stream._propose = lambda *_, stream=stream: Proposal(stream._backend.root_tree())
        for _ in range(40):
            next(stream)
        stream._propose = propose
    step, expected = next(plain), next(sliced)
    assert len(step.nodes) == TREE.nodes
    assert [node.token_id for node in step.nodes] == [node.token_id for node in expected.nodes]


def test_widest_tree_fits_the_buffers_and_a_wider_one_uses_the_reference_backend():
    generator = static_generator()
    backend, drafter = generator.backend, generator.drafter(DEFAULT)
    widest = TreeConfig(width=MOST_DRAFT_ROWS // 16, depth=16, nodes=MOST_NODES)
    session = backend.open(drafter, SamplingParams(), widest, 4, backend.pool.tokens)
    assert isinstance(session, GraphBuffers)
    backend.close(session)
    for tree in (replace(widest, nodes=MOST_NODES + 1), replace(widest, width=widest.width + 1)):
        session = backend.open(drafter, SamplingParams(), tree, 4, 8)
        assert isinstance(session, TorchSession)
        backend.close(session)
    assert backend.num_rejected == 2 and len(backend.pool._free) == 1


def test_buffers_are_returned_once_and_reused_by_the_same_drafter():
    generator = static_generator()
    pool, (plain, drafter) = generator.backend.pool, map(generator.drafter, (PLAIN, DEFAULT))
    borrowed = [pool.borrow(user, SamplingParams(), TREE, 4, 8) for user in (plain, drafter)]
    for buffers in (*borrowed, *borrowed):
        pool.give_back(buffers)
    assert len(pool._free) == 2
    for user, buffers in zip((plain, drafter), borrowed, strict=True):
        again = pool.borrow(user, SamplingParams(), TREE, 4, 8)
        assert again is buffers
        pool.give_back(again)
    thread = threading.Thread(target=pool.give_back, args=(pool._take(),))
    with pool._lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(180)
    assert len(pool._free) == 2


def test_buffers_fit_a_text_whose_last_token_is_not_read():
    generator = static_generator(tokens=10**6)
    assert generator.backend.pool.tokens == generator.max_prompt_tokens + 1
