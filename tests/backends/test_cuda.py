"""Tests that need a GPU: captured passes, one read per step, memory, and agreement with float32 texts.

`make test DEVICE=cuda` runs these with the rest of the suite; without a GPU they skip.
"""

from contextlib import contextmanager

import pytest
import torch

from jakiro.backends.cuda_graphs.backend import CudaGraphBackend
from jakiro.backends.cuda_graphs.buffers import GraphBuffers
from jakiro.backends.cuda_graphs.pool import GraphPool
from jakiro.config import SamplingParams
from jakiro.decode.device_profile import measure
from jakiro.drafters.base import Resources
from jakiro.drafters.registry import DEFAULT
from jakiro.generator import JakiroGenerator
from jakiro.progress import CAPTURE, reporting_to
from tests.backends.static import shape_of, usual_drafters
from tests.support import (
    REPETITIVE,
    SAMPLINGS,
    TREE,
    ScriptedDrafter,
    assert_drafting_took_part,
    byte_tokenizer,
    reference_answer,
    tiny_head,
    tiny_model,
)

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
CUDA = torch.device("cuda", 0)
# `python -m jakiro bench` compares many more tokens, on the default pair
IDENTICAL_TOKENS = 2000


def on_gpu(
    numerics: str = "exact", graphs: bool = True, dtype: torch.dtype = torch.float32, scripted: bool = False
) -> JakiroGenerator:
    """Return a generator of a tiny pair with static buffers on the GPU."""
    from jakiro.models.target import TargetModel

    target = TargetModel(tiny_model(dtype=dtype).to(CUDA), byte_tokenizer(), "tiny", "0" * 64, numerics)
    backend = CudaGraphBackend(GraphPool(target, graphs))
    if scripted:
        drafter = ScriptedDrafter(tiny_model().to(CUDA), 0.3)
        return JakiroGenerator(Resources(target), {DEFAULT.name: drafter}, backend=backend)
    return JakiroGenerator(Resources(target, tiny_head(target), {"name": "tiny", "sha256": None}), backend=backend)


@contextmanager
def only_read_may_block(monkeypatch):
    """Make every blocking call raise an error, except the read of the buffers."""
    to_host = GraphBuffers._to_host

    def read(slot, size):
        torch.cuda.set_sync_debug_mode("default")
        try:
            return to_host(slot, size)
        finally:
            torch.cuda.set_sync_debug_mode("error")

    monkeypatch.setattr(GraphBuffers, "_to_host", read)
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_captured_passes_equal_eager_passes(sampling, numerics):
    captured, eager = on_gpu(numerics), on_gpu(numerics, graphs=False)
    for method, tree in (("autoregressive", None), ("jakiro", TREE), ("jakiro+prompt_lookup", TREE)):
        trace = captured.run(REPETITIVE, sampling, method, tree)
        assert shape_of(trace) == shape_of(eager.run(REPETITIVE, sampling, method, tree))
    status = captured.status["graphs"]
    assert status["failure"] is None and status["captured"] > 8


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_captured_texts_equal_those_of_a_stock_model_in_float32(sampling):
    generator = on_gpu(scripted=True)
    trace = generator.run("Tell me.", sampling, tree=TREE)
    prompt = generator.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Tell me."}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert list(trace.token_ids) == reference_answer(tiny_model().to(CUDA), prompt, sampling)
    assert_drafting_took_part(trace.steps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_plain_and_drafted_logits_are_bit_identical_in_exact_numerics(dtype, monkeypatch):
    generator = on_gpu(dtype=dtype, scripted=True)
    if not generator.target.bit_identical:
        pytest.skip("the load probe found that this GPU's kernels depend on the rows")
    rows: list[torch.Tensor] = []
    verify = GraphBuffers.verify

    def verify_and_record(slot, tree, whole_vocabulary=False):
        outcome = verify(slot, tree, whole_vocabulary)
        rows.append(slot.scored[[0, *outcome.accepted_path]].clone())
        return outcome

    monkeypatch.setattr(GraphBuffers, "verify", verify_and_record)
    compared, seed = 0, 0
    while compared < IDENTICAL_TOKENS:
        sampling = SamplingParams(float(seed % 2), seed=seed, max_new_tokens=180)
        logits = {}
        for method in ("autoregressive", "jakiro"):
            rows.clear()
            trace = generator.run(f"Tell me {seed}.", sampling, method, TREE if method == "jakiro" else None)
            logits[method] = torch.cat(rows)[: len(trace.token_ids) - 1]
        assert torch.equal(logits["autoregressive"], logits["jakiro"]), f"seed {seed}"
        compared, seed = compared + len(trace.token_ids), seed + 1


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_step_waits_for_the_device_once(sampling, graphs, monkeypatch):
    generator = on_gpu(graphs=graphs)
    for method, tree in (("autoregressive", None), ("jakiro", TREE), ("jakiro+prompt_lookup", TREE)):
        stream = generator.stream(REPETITIVE, sampling, method, tree)
        next(stream)
        with only_read_may_block(monkeypatch):
            steps = [next(stream) for _ in range(4)]
        assert all(step.draft_ms >= 0 and step.verify_ms > 0 and step.other_ms >= 0 for step in steps)


def test_planted_wait_is_detected(monkeypatch):
    with pytest.raises(RuntimeError, match="synchroniz"), only_read_may_block(monkeypatch):
        torch.ones(3, device=CUDA).sum().item()


def test_generators_and_races_in_one_process_do_not_affect_each_other():
    sampling = SamplingParams(1.0, seed=3, max_new_tokens=24)
    first, second = on_gpu("exact"), on_gpu("fast")
    expected = [shape_of(generator.run("Why?", sampling, tree=TREE)) for generator in (first, second)]
    streams = [generator.stream("Why?", sampling, tree=TREE) for generator in (first, second)]
    while not all(stream.finished for stream in streams):
        for stream in streams:
            next(stream, None)
    assert [shape_of(stream.trace) for stream in streams] == expected
    race = first.race("Why?", sampling, tree=TREE)
    for _ in race:
        pass
    assert race.traces["jakiro"].token_ids == race.traces["autoregressive"].token_ids


def test_dropped_buffers_leave_graphs_of_other_buffers_intact():
    """On torch 2.13 dropping a graph clears the cuBLAS workspace of its stream; run this under compute-sanitizer."""
    generator, sampling = on_gpu(), SamplingParams(1.0, seed=3, max_new_tokens=24)
    expected = generator.run("Why?", sampling, tree=TREE).token_ids
    answer = generator.stream("Why?", sampling, tree=TREE)
    next(answer)
    generator.run("Why?", sampling, "autoregressive")
    slots = generator.backend.pool
    slots._retired, slots._free = slots._free, []
    slots._free_retired()
    # Released memory is used by other tensors
    tensor = torch.randn(64 << 20, device=CUDA)
    for _ in answer:
        tensor.normal_()
    assert answer.trace.token_ids == expected


def test_usual_passes_are_captured_at_load_within_reported_memory():
    generator, done = on_gpu("fast"), []
    with reporting_to(lambda step, share, _: done.append((step, share))):
        generator.backend.pool.prepare(usual_drafters(generator))
    status = generator.status["graphs"]
    assert done[-1] == (CAPTURE, 1) and len(done) >= status["captured"] > 0 and status["bytes"] > 0
    generator.profile = measure(generator.backend, generator.drafter(DEFAULT), True)
    assert generator.run("Why?", SamplingParams(max_new_tokens=40)).token_ids
    assert generator.status["graphs"]["captured"] == status["captured"]
