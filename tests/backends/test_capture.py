"""Graph capture, simulated without a GPU: captured passes and their order, and equal text from replays."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from jakiro.backends.cuda_graphs.capture import WARM_UPS, GraphCache, GraphedPass, Graphs
from jakiro.config import AUTOMATIC_TREE, SamplingParams, TreeConfig
from jakiro.decode.device_profile import measure
from jakiro.drafters.base import Resources
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN, WITH_COPIES
from tests.backends.static import bucketed_target, in_slots, shape_of, static_generator
from tests.marks import rarely
from tests.support import REPETITIVE, SAMPLINGS, TREE, tiny_generator

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU; test_cuda.py captures on it")

CPU = torch.device("cpu")
# Kinds of passes that every step runs
STEP = {"write_root", "score_rows", "verify_rows", "commit_rows"}


def test_pass_is_warmed_up_on_a_side_stream_then_captured_and_replayed(cuda):
    counted, source, target = [], torch.ones(3), torch.zeros(3)

    def double() -> None:
        counted.append(1)
        target.copy_(source * 2)

    graphed = GraphedPass(GraphCache(Graphs(CPU, True)), double)
    graphed.prepare()
    assert cuda.log == ["wait", "aside", "back", "wait", "capture", "captured"]
    assert not cuda.collecting
    assert len(counted) == WARM_UPS + 1
    for value in (3.0, 5.0):
        source.fill_(value)
        graphed()
        assert target.tolist() == [2 * value] * 3
    graphed.prepare()
    assert len(counted) == WARM_UPS + 1 and cuda.graphs[0].replays == 2


def test_other_numerics_are_captured_separately(cuda):
    exact = static_generator(graphs=True)
    sampling = SamplingParams(max_new_tokens=6)
    exact.run("Why?", sampling, tree=TREE)
    fast = exact.with_numerics("fast")
    before = fast.backend.pool.graphs.num_captured
    assert fast.backend.pool.graphs.enabled and fast.backend.pool is not exact.backend.pool
    fast.run("Why?", sampling, tree=TREE)
    assert fast.backend.pool.graphs.num_captured > before
    assert not cuda.eager


@pytest.mark.parametrize(
    ("method", "tree", "tokens", "captured"),
    [
        ("autoregressive", None, 3, set()),
        ("autoregressive", None, 12, STEP),
        ("jakiro", TREE, 13, set()),
        ("jakiro", TREE, 64, STEP | {"grow"}),
        ("jakiro", AUTOMATIC_TREE, 64, STEP | {"grow"}),
    ],
)
def test_borrowed_gpu_captures_only_for_answers_with_enough_steps(method, tree, tokens, captured, cuda):
    """A drafted step is estimated to commit 3.5 tokens."""
    generator = static_generator(graphs=True, measured=True, tokens=200, fewest_steps=4)
    sampling = SamplingParams(max_new_tokens=tokens)
    trace = generator.run("Why?", sampling, method, tree)
    assert shape_of(trace)[1:] == shape_of(tiny_generator().run("Why?", sampling, method, tree))[1:]
    (slot,) = generator.backend.pool._free
    assert {item.function.func.__name__ for item in slot.passes._passes.values() if item.graph is not None} == captured
    assert not captured & set(cuda.eager)


@pytest.mark.parametrize("read", [lambda x: x[0].item(), lambda x: x.nonzero(), lambda x: torch.unique(x)])
def test_planted_host_read_makes_capture_fail_and_passes_run_eagerly(read, cuda, monkeypatch):
    target = bucketed_target()
    score = target.score

    def score_with_read(tree, cache, live):
        read(tree.token_ids)
        return score(tree, cache, live)

    monkeypatch.setattr(target, "score", score_with_read)
    generator = in_slots(Resources(target), graphs=True)
    sampling = SamplingParams(max_new_tokens=6)
    trace = generator.run("Why?", sampling, "autoregressive")
    assert trace.token_ids == tiny_generator().run("Why?", sampling, "autoregressive").token_ids
    assert "not permitted when stream is capturing" in generator.status["graphs"]["failure"]
    assert generator.status["graphs"]["graphs"] is False
    assert any("passes run without graphs" in notice for notice in generator.status["notices"])
    assert "score_rows" in cuda.eager and cuda.stream == "current"


def test_two_threads_never_capture_at_once(cuda):
    inside, most, graphs = 0, 0, Graphs(CPU, True)

    def count_threads() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1

    passes = [GraphedPass(GraphCache(graphs), count_threads) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(GraphedPass.prepare, passes))
    assert most == 1 and len(cuda.graphs) == 3


def test_automatic_trees_have_a_single_size_whose_passes_are_timed():
    generator = static_generator(numerics="fast", graphs=False, tokens=200)
    profile = measure(generator.backend, generator.drafter(DEFAULT), True)
    assert [rows for rows, _ in profile.verify_ms] == [1, 64] and [levels for levels, _ in profile.draft_ms] == [5]
    assert len(generator.backend.pool._free) == 1
    generator.profile = profile
    trace = generator.run("Why?", SamplingParams(max_new_tokens=30), tree=TreeConfig(policy="auto", nodes=64, depth=8))
    assert {len(step.nodes) for step in trace.steps} <= {1, 64}
    trace = generator.run("Why?", SamplingParams(max_new_tokens=30), tree=TreeConfig(policy="auto", nodes=20, depth=3))
    # The best twenty candidates may all be above the deepest drafted level
    assert {len(step.nodes) for step in trace.steps} <= {1, 20} and max(step.plan.levels for step in trace.steps) <= 3


ANSWERS = [
    (method, replace(sampling, max_new_tokens=10, seed=seed), tree)
    for seed, sampling in enumerate(SAMPLINGS.values())
    for method, tree in (("autoregressive", None), ("jakiro", TREE), (WITH_COPIES.name, TreeConfig(4, 3, 9)))
]


def test_poison_exposes_a_pass_that_reads_tensors_of_another_capture(cuda):
    source, target, tensors = torch.ones(3), torch.zeros(3), []
    cache = GraphCache(Graphs(torch.device("cpu"), True))
    first = GraphedPass(cache, lambda: tensors.append(source * 2))
    second = GraphedPass(cache, lambda: target.copy_(tensors[-1] + 1))
    for graphed in (first, second):
        graphed.prepare()
    first()
    second()
    assert target.isnan().all()


@pytest.mark.parametrize(
    "head",
    ["summed", *(rarely(head) for head in ("dflash", "decoupled, reduced vocabulary"))],
)
def test_poison_between_shuffled_replays_changes_no_text_and_no_tree(head, cuda):
    """Each text is replayed after others; another seed and temperature must not capture again."""
    generator, sliced = static_generator(head, graphs=True), tiny_generator(head)
    order = ANSWERS * 2
    random.Random(3).shuffle(order)
    order.append(("autoregressive", SamplingParams(0.6, seed=7, max_new_tokens=10), None))
    for method, sampling, tree in order:
        method = head if head in METHODS and method != PLAIN.name else method
        captured = generator.backend.pool.graphs.num_captured
        trace = generator.run(REPETITIVE, sampling, method, tree)
        assert shape_of(trace) == shape_of(sliced.run(REPETITIVE, sampling, method, tree))
    assert generator.backend.pool.graphs.num_captured == captured
    assert not set(cuda.eager) - {"verify_rows"}, "every pass must be captured before the answer starts"
    assert sum(graph.replays for graph in cuda.graphs) > 40
