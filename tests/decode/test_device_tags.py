"""A whole generator on a simulated GPU: CPU and device tensors are never mixed, and a step blocks once.

Loading, prefill, drafting, scoring, verification and commits run in static buffers as on a GPU, but are not captured.
The first answer of the page and an answer on ZeroGPU run in the same way.
"""

import threading
from dataclasses import replace

import pytest
import torch

from app.asking import Asking
from jakiro.backends.cuda_graphs.buffers import GraphBuffers
from jakiro.backends.cuda_graphs.pool import GraphPool
from jakiro.config import Grammar, SamplingParams
from jakiro.drafters.registry import PLAIN
from jakiro.generator import JakiroGenerator
from jakiro.loading import loader
from tests.backends.static import COSTS
from tests.device_tags import PRETENDED
from tests.marks import rarely
from tests.support import REPETITIVE, TREE, scripted_generator, tiny_generator

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU; test_cuda.py runs on it")

GREEDY, SAMPLED = SamplingParams(max_new_tokens=5), SamplingParams(1.0, top_p=0.9, seed=3, max_new_tokens=5)
LONG = SamplingParams(max_new_tokens=12)
PENALISED = SamplingParams(
    0.8, seed=3, max_new_tokens=5, min_p=0.02, repetition_penalty=1.3, frequency_penalty=0.5, suppress_tokens=(7, 9)
)


def loaded(tags, **options) -> JakiroGenerator:
    generator = JakiroGenerator.from_pretrained(*tags.pair, dtype="float32", graphs=False, **options)
    generator.profile = COSTS
    return generator


@pytest.mark.rare
@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_device_tag_loading_and_steps_wait_for_the_device_once(tags, numerics, monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 * 10**9)
    samplings = (GREEDY, SAMPLED, PENALISED)
    plain = {sampling: tiny_generator().run(REPETITIVE, sampling, "autoregressive") for sampling in samplings}
    with tags:
        generator = loaded(tags, numerics=numerics)
        assert generator.status["device"] == "cuda:0" and generator.status["graphs"]["slots"] == 1
        assert generator.status["seconds"]["load"] > 0 and generator.status["most_gpu_memory"] == 3 * 10**9
        for sampling, expected in plain.items():
            for method, tree in (("autoregressive", None), ("jakiro", TREE), ("jakiro+prompt_lookup", TREE)):
                stream = generator.stream(REPETITIVE, sampling, method, tree)
                with tags.without_waiting():
                    for _ in stream:
                        pass
                assert stream.trace.token_ids == expected.token_ids


@pytest.mark.parametrize(
    "sampling",
    [replace(GREEDY, no_repeat_ngram_size=1), rarely(replace(SAMPLED, grammar=Grammar("regex", "[a-f]{2,9}")))],
    ids=["runs", "grammar"],
)
def test_device_tag_processors_on_the_host_disable_captured_verification_and_drafting_ahead(tags, sampling):
    expected = tiny_generator().run(REPETITIVE, sampling, "autoregressive").token_ids
    with tags:
        generator = loaded(tags)
        for method, tree in (("autoregressive", None), ("jakiro", TREE)):
            stream = generator.stream(REPETITIVE, sampling, method, tree)
            assert not stream._backend.can_draft_ahead
            drafter = generator.drafter(generator.known_methods.named(method))
            passes = stream._backend.needed(drafter, sampling, TREE, 1, 40)
            assert not [item for item in passes if item.function.func.__name__ == "verify_rows"]
            for step in stream:
                assert step.plan.why.endswith("so nothing is drafted ahead.")
            assert stream.trace.token_ids == expected
        assert generator.stream(REPETITIVE, GREEDY, tree=TREE)._backend.can_draft_ahead


def test_device_tag_mode_detects_blocking_calls_in_a_step(tags, monkeypatch):
    with tags:
        stream = loaded(tags).stream("Why?", GREEDY, tree=TREE)
        ours, pinned = torch.ones(3, device=PRETENDED), torch.ones(3, pin_memory=True)
        with tags.without_waiting():
            ours.copy_(pinned, non_blocking=True)
            ours[:2] = 1.0
            for wait in (
                lambda: ours.sum().item(),
                lambda: ours[ours > 0],
                lambda: (ours > 0).nonzero(),
                lambda: torch.unique(ours),
                lambda: ours.repeat_interleave(ours.long()),
                lambda: torch.tensor([1], device=PRETENDED),
                lambda: ours.copy_(torch.ones(3)),
                lambda: ours.cpu(),
                lambda: ours.__setitem__(0, 1.0),
            ):
                with pytest.raises(RuntimeError, match=r"host reads|not pinned"):
                    wait()
        commit = GraphBuffers.commit
        monkeypatch.setattr(
            GraphBuffers, "commit", lambda slot, outcome: (slot.root.tolist(), commit(slot, outcome))[1]
        )
        with pytest.raises(RuntimeError, match="tolist: the host reads"), tags.without_waiting():
            next(stream)


def test_device_tag_a_reread_step_reads_twice(on_a_pretended_gpu):
    with on_a_pretended_gpu as tags:
        stream = scripted_generator(vocab_size=1500).stream("Tell me.", SamplingParams(2.0, top_p=0.99), PLAIN.name)
        for _ in range(2):
            tags.reads.clear()
            next(stream)
            assert tags.reads == {"tolist": 2}


@pytest.mark.rare
def test_device_tag_answer_on_zerogpu(tags, monkeypatch):
    """Load on the CPU; the process that answers moves the pair to the GPU and captures its own graphs."""
    zero_device = pytest.importorskip(
        "app.devices.zero", reason="the page's packages are not installed", exc_type=ImportError
    )
    options = loader.LoadOptions(*tags.pair, "cpu", "float32", "exact", "full", capture_at_load=False)
    asking = Asking(({"role": "user", "content": "Why?"},), LONG, TREE, ("autoregressive", "jakiro"))
    captured, threads = [], torch.get_num_threads()
    monkeypatch.setattr(zero_device, "seconds_for", lambda *_: 120)
    monkeypatch.setattr(loader, "PAYS_FROM", 3)
    monkeypatch.setattr(GraphPool, "prepare", lambda *_: pytest.fail("seconds of a borrowed GPU for unused graphs"))

    def gpu(duration):
        """Replace `spaces.GPU` by the simulated GPU in this process; objects loaded by an answer end with it."""

        def decorate(task):
            def run_inside(*arguments):
                with tags:
                    yield from task(*arguments)
                    captured.append(zero._generator.status["graphs"]["captured"])
                    zero._generator = None

            return run_inside

        return decorate

    zero = zero_device.ZeroDevice(lambda: loader.read_pair(options), gpu, "cuda")
    zero.load(lambda *_: None)
    expected = tiny_generator().run("Why?", LONG, "autoregressive")
    for _ in range(2):
        events = list(zero.answer(asking, threading.Event()))
        assert zero.status["device"].startswith("cuda")
        for method in asking.methods:
            texts = [payload.text for kind, name, payload in events if kind == "step" and name == method]
            assert expected.text.endswith("".join(texts))
    torch.set_num_threads(threads)
    first, second = captured
    assert first == second > 4, "each process must capture its own graphs"
