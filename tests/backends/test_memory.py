"""Buffers and graphs within memory: capture, release, and the state after a refusal."""

import gc
import threading
import weakref

import pytest
import torch

from jakiro import progress, system
from jakiro.backends.cuda_graphs import pool
from jakiro.backends.cuda_graphs.buffers import GraphBuffers
from jakiro.config import AUTOMATIC_TREE, SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.ops.rotary import AngleTable
from tests.backends.fake_graphs import GRAPH_BYTES
from tests.backends.static import bucketed_target, shape_of, static_generator, usual_drafters
from tests.support import TREE, tiny_generator, tiny_head

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU; test_cuda.py captures on it")

SHORT = SamplingParams(max_new_tokens=6)
SAMPLED = SamplingParams(0.8, seed=3, max_new_tokens=6)


def test_first_answer_of_the_page_captures_nothing_more(cuda):
    """It is a race of plain decoding and the default method with automatic trees, at any temperature."""
    generator, done = static_generator(numerics="fast", graphs=True, measured=True, tokens=40), []
    with progress.reporting_to(lambda name, share, total_bytes: done.append((name, share))):
        generator.backend.pool.prepare(usual_drafters(generator), side_by_side=2)
    assert done == [(progress.CAPTURE, pytest.approx(count / len(done))) for count in range(1, len(done) + 1)]
    status, captured = generator.status["graphs"], generator.backend.pool.graphs.num_captured
    assert status["graphs"] and status["captured"] == captured and status["failure"] is None
    assert status["graph_bytes"] == captured * GRAPH_BYTES < status["bytes"]
    for sampling in (SHORT, SAMPLED):
        race = generator.race("Why?", sampling, (PLAIN.name, DEFAULT.name), AUTOMATIC_TREE)
        for _ in race:
            pass
        plain = tiny_generator(numerics="fast").run("Why?", sampling, PLAIN.name)
        assert all(trace.token_ids == plain.token_ids for trace in race.traces.values())
    assert generator.status["graphs"]["captured"] == captured and not cuda.eager
    assert generator.status["graphs"]["slots"] == 2


def test_single_set_of_buffers_is_prepared_if_memory_is_too_small_for_two(cuda, monkeypatch):
    generator = static_generator(graphs=True, tokens=40)
    monkeypatch.setattr(pool.GraphPool, "_fits_another", lambda slots, num_made: not num_made)
    generator.backend.pool.prepare(usual_drafters(generator), side_by_side=2)
    assert generator.status["graphs"]["slots"] == 1
    assert generator.run("Why?", SHORT, tree=AUTOMATIC_TREE).steps and not cuda.eager


def test_graphs_of_a_slot_are_dropped_together_at_the_limit_of_their_budget(cuda):
    """Graphs of another slot, in the middle of an answer, stay intact."""
    generator, sliced = static_generator(graphs=True), tiny_generator()
    graphs = generator.backend.pool.graphs
    generator.run("Why?", SHORT, tree=TREE)
    answer = generator.stream("Why?", SAMPLED, tree=TREE)
    first = next(answer)
    num_graphs = len(cuda.graphs)
    generator.run("Why?", SHORT, "autoregressive")
    graphs.budget = (num_graphs + 1) * GRAPH_BYTES
    cuda.log.clear()
    for nodes in range(6, 12):
        tree = TreeConfig(width=4, depth=3, nodes=nodes)
        assert shape_of(generator.run("Why?", SHORT, tree=tree)) == shape_of(sliced.run("Why?", SHORT, tree=tree))
    assert cuda.log.count("reset") >= num_graphs and not cuda.eager
    assert cuda.log.index("synchronize") < cuda.log.index("reset"), "no graph is dropped while the device may run it"
    status = generator.status["graphs"]
    assert status["graph_bytes"] == GRAPH_BYTES * len(cuda.graphs)
    list(answer)
    assert first.nodes and answer.trace.text == sliced.run("Why?", SAMPLED, tree=TREE).text


def test_dropped_slot_is_freed_without_the_garbage_collector(cuda, monkeypatch):
    generator = static_generator(graphs=True, tokens=40)
    generator.run("Why?", SHORT, tree=TREE)
    generator.backend.pool._retired, generator.backend.pool._free = generator.backend.pool._free, []
    (slot,) = generator.backend.pool._retired
    buffers = weakref.ref(slot.cache.store.untyped_storage())
    gone = weakref.ref(slot)
    del slot
    monkeypatch.setattr(gc, "collect", lambda: None)
    gc.disable()
    try:
        generator.run("Why?", SHORT, tree=TREE)
        assert gone() is None and buffers() is None
    finally:
        gc.enable()
    assert GRAPH_BYTES * len(cuda.graphs) == generator.status["graphs"]["graph_bytes"]


def test_angle_tables_of_captured_passes_keep_their_address_for_longer_texts():
    table, positions = AngleTable(tiny_head(bucketed_target()).rotary), torch.arange(4)
    before = [part.clone() for part in table.at(positions, 8)]
    read = table._tables[-1]
    assert all(map(torch.equal, before, table.at(positions, 5000)))
    assert any(part is read for part in table._tables) and table._tables[-1] is not read


@pytest.mark.parametrize("method", ["__init__", "open"])
def test_no_slot_is_lost_if_creating_or_opening_one_fails(method, cuda, monkeypatch):
    generator = static_generator(graphs=True, tokens=40)
    run_out_of_memory_in(method, generator, monkeypatch)
    assert generator.run("Why?", SHORT, tree=TREE).steps
    assert generator.status["graphs"]["slots"] == 1


def run_out_of_memory_in(method, generator, monkeypatch):
    """Run an answer in which a method of its buffers runs out of memory."""
    with monkeypatch.context() as patch:
        patch.setattr(GraphBuffers, method, out_of_memory)
        with pytest.raises(torch.OutOfMemoryError):
            generator.run("Why?", SHORT, tree=TREE)


def out_of_memory(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_out_of_memory_in_a_capture_is_reported_as_such(cuda):
    generator = static_generator(graphs=True)
    cuda.fail = out_of_memory
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        generator.run("Why?", SHORT, tree=TREE)
    cuda.fail = lambda: None
    assert cuda.stream == "current" and generator.backend.pool.graphs.enabled
    assert generator.run("Why?", SHORT, tree=TREE).steps and not cuda.eager


@pytest.mark.parametrize(("version", "gives_back"), [("2.12.1+cu130", False), ("2.13.0+cu130", True)])
def test_memory_is_not_released_on_old_torch_after_a_rejected_capture(version, gives_back, cuda, monkeypatch):
    monkeypatch.setattr(system, "version", lambda package: version)
    monkeypatch.setattr(system, "_keeps_memory", threading.Event())
    calls, empty_cache = [], torch.cuda.empty_cache
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: (calls.append(1), empty_cache()))
    generator, cuda.asserts = static_generator(graphs=True, tokens=40), not gives_back

    def refuse():
        raise RuntimeError("operation not permitted when stream is capturing")

    cuda.fail = refuse
    generator.run("Why?", SHORT, tree=TREE)
    calls.clear()
    run_out_of_memory_in("open", generator, monkeypatch)
    system.release_memory()
    assert generator.run("Why?", SHORT, tree=TREE).steps
    assert bool(calls) == gives_back
