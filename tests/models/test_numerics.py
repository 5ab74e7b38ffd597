"""One pair with both numerics: weights are shared, profiles are separate, and every trace names its numerics."""

import pytest

from jakiro.backends.cuda_graphs.buffers import GraphBuffers
from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.models.target import TargetModel
from tests.backends.static import static_generator
from tests.support import TREE, byte_tokenizer, tiny_generator, tiny_model

SAMPLING = SamplingParams(max_new_tokens=12)


def test_a_pair_switches_its_numerics_without_new_weights(without_compiled_functions):
    generator = tiny_generator("summed")
    fast = generator.with_numerics("fast")
    assert fast is generator.with_numerics("fast") and fast.with_numerics("exact") is generator
    assert fast.target.embedding is generator.target.embedding
    assert fast.drafter(DEFAULT) is generator.drafter(DEFAULT)
    assert [pair.run("Why?", SAMPLING, tree=TREE).header.numerics for pair in (generator, fast)] == ["exact", "fast"]
    assert [pair.status["numerics"] for pair in (generator, fast)] == ["exact", "fast"]


def test_compiled_passes_are_always_exact():
    generator = tiny_generator("summed", numerics="fast")
    if not generator.target.compiled:
        pytest.skip("no compiler")
    assert generator.status["numerics"] == "exact" and generator.target.bit_identical
    assert generator.with_numerics("fast") is generator.with_numerics("exact") is generator
    with pytest.raises(ValueError, match="got 'quick'"):
        generator.with_numerics("quick")


def test_tree_with_more_rows_than_plain_decoding_is_not_reported_as_bit_identical():
    """On a GPU a pass of up to 64 nodes has as many rows as that of a single token; 65 nodes have more."""
    generator = static_generator()
    generator.target.bit_identical = True
    sampling = SamplingParams(max_new_tokens=2)
    for nodes, is_identical in ((64, True), (65, False)):
        trace = generator.run("Why?", sampling, tree=TreeConfig(width=12, depth=6, nodes=nodes))
        assert trace.header.bit_identical is is_identical


def test_quantized_weights_are_not_reported_as_bit_identical():
    """8-bit quantization searches for outliers across the rows of a pass."""
    model = tiny_model()
    model.quantization_method = "bitsandbytes"
    target = TargetModel(model, byte_tokenizer())
    assert target.numerics == "exact" and not target.bit_identical
    assert any("quantized" in notice for notice in target.notices)


def test_bit_identical_is_withdrawn_if_static_buffers_round_differently(monkeypatch):
    """The target's own probe uses a sliced cache, but answers run in static buffers."""
    generator = static_generator(graphs=False)
    plain = generator.drafter(PLAIN)
    generator.backend.pool.target.bit_identical = True
    assert generator.backend.pool.settle(plain).bit_identical and len(generator.backend.pool._free) == 1
    score = GraphBuffers.score_rows

    def score_rows(slot, rows, live, *more):
        score(slot, rows, live, *more)
        if live > 40:
            slot.scored[40, 7] += 1e-3

    monkeypatch.setattr(GraphBuffers, "score_rows", score_rows)
    generator.backend.pool._free.clear()
    assert not generator.backend.pool.settle(plain).bit_identical and generator.target.bit_identical
