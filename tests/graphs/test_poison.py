"""A slot's graphs share a pool of memory: each runs on what lies outside of it, in whatever order they are replayed."""

import random
from dataclasses import replace

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.graphs.capture import GraphedPass, Graphs, PassBook
from jakiro.methods import METHODS, PLAIN
from tests.engine.test_meta_device import REPETITIVE, SAMPLINGS
from tests.graphs.fake_graphs import FakeCuda
from tests.graphs.static import shape_of, static_generator
from tests.support import TREE, tiny_generator

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here; test_cuda.py captures on it")

ANSWERS = [
    (method, replace(sampling, max_new_tokens=10, seed=seed), tree)
    for seed, sampling in enumerate(SAMPLINGS.values())
    for method, tree in (("autoregressive", None), ("jakiro", TREE), ("jakiro", TreeConfig(width=4, depth=3, nodes=9)))
]


@pytest.fixture
def cuda(monkeypatch, without_compiled_functions):
    return FakeCuda(monkeypatch)


def test_poison_shows_a_pass_that_reads_what_another_capture_made(cuda):
    source, target, made = torch.ones(3), torch.zeros(3), []
    book = PassBook(Graphs(torch.device("cpu"), True))
    first = GraphedPass(book, lambda: made.append(source * 2))
    second = GraphedPass(book, lambda: target.copy_(made[-1] + 1))
    for each in (first, second):
        each.prepare()
    first()
    second()
    assert target.isnan().all()


@pytest.mark.parametrize(
    "head", ["summed", "dflash", pytest.param("decoupled, reduced vocabulary", marks=pytest.mark.rare)]
)
def test_poison_between_shuffled_replays_changes_no_text(head, cuda):
    generator, sliced = static_generator(head, graphs=True), tiny_generator(head)
    order = ANSWERS * 2
    random.Random(3).shuffle(order)
    for method, sampling, tree in order:
        method = head if head in METHODS and method != PLAIN.name else method
        trace = generator.run(REPETITIVE, sampling, method, tree)
        assert shape_of(trace) == shape_of(sliced.run(REPETITIVE, sampling, method, tree))
    assert not set(cuda.eager) - {"verify_rows"}


def test_poison_between_the_steps_of_two_slots_changes_no_text(cuda):
    generator, sliced = static_generator(graphs=True), tiny_generator()
    sampling = SamplingParams(1.0, seed=5, max_new_tokens=16)
    race = generator.race("Why?", sampling, tree=TREE)
    for _ in race:
        pass
    for method, trace in race.traces.items():
        assert shape_of(trace) == shape_of(sliced.run("Why?", sampling, method, TREE))
