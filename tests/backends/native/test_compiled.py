"""Compiled functions: the results of torch operations for any rows, slots and threads, or a reason without them."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from jakiro.backends.native import library as compiled_library
from jakiro.backends.native.library import library
from jakiro.backends.native.linear import CompiledInt8Linear, NativeLinear
from jakiro.backends.native.sampling import best_of_mixture, best_tokens
from jakiro.config import SamplingParams
from jakiro.core.noise import KeyedNoise, NoiseRows
from jakiro.core.sampling import choose
from jakiro.core.tree import DraftTree, ancestor_mask
from jakiro.core.verify import verify
from jakiro.drafters.tree_growth import Experts
from jakiro.models.target import TargetModel
from jakiro.ops import kernels
from jakiro.ops.rounding import rounded_to_8_bits
from jakiro.system import is_out_of_memory
from tests import needs
from tests.support import byte_tokenizer, tree_of

pytestmark = needs.compiled_functions

PROMPT = 37


@pytest.fixture
def target_of(monkeypatch):
    """Return a function that makes the same random target with or without compiled functions."""

    def make(
        compiled: bool, half: bool = True, feature_layers: tuple[int, ...] = (), expect: bool | None = None, **config
    ) -> TargetModel:
        monkeypatch.setattr("jakiro.ops.linear.native_works", lambda: compiled)
        torch.manual_seed(0)
        sizes = {"hidden_size": 72, "intermediate_size": 96, "num_hidden_layers": 3} | config
        heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 80}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=260, **sizes, **heads)).eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.copy_(parameter * 8 if parameter.ndim == 2 else parameter + 0.3 * torch.randn(parameter.shape))
            if half:
                parameter.copy_(parameter.bfloat16().float())
        target = TargetModel(model, byte_tokenizer())
        assert target.compiled == (compiled if expect is None else expect)
        return target.with_feature_layers(feature_layers)

    return make


@pytest.mark.parametrize(("rows", "inputs"), [(1, 90), (3, 90), (7, 50), (14, 64), (15, 90), (40, 90), (3, 9000)])
def test_rounded_layer_is_as_accurate_as_its_rounding(rows, inputs):
    """Covers sizes that are no multiple of a panel or vector; a row does not depend on the number of rows."""
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn((77, inputs), generator=generator) * torch.logspace(-2, 2, inputs)
    hidden, bias = torch.randn((rows, inputs), generator=generator) / torch.logspace(-2, 2, inputs), torch.randn(77)
    rounded, scales, factors = rounded_to_8_bits(weight)
    layer = CompiledInt8Linear(weight, bias)
    assert layer.packed.dtype == torch.int8
    read = (hidden * factors).double()
    steps = read.abs().amax(1, keepdim=True) / min(32767, 2**31 // (127 * inputs))
    dequantized = rounded.double() * scales.double()[:, None]
    result = layer(hidden)
    # Each input is rounded by at most half a step
    allowed = 0.505 * steps * dequantized.abs().sum(1) + 1e-5
    assert ((result - (read @ dequantized.T + bias)).abs() <= allowed).all()
    assert torch.equal(result, torch.cat([layer(row[None]) for row in hidden]))


@pytest.mark.parametrize("inputs", [64, 530, 20_000])
def test_sums_of_the_largest_numbers_fit_into_32_bits(inputs):
    weight = torch.ones(40, inputs)
    for sign in (1, -1):
        result = CompiledInt8Linear(weight, None)(torch.full((2, inputs), sign * 3.0))
        torch.testing.assert_close(result, torch.full((2, 40), sign * 3.0 * inputs))


def bushy_tree() -> DraftTree:
    """Return a tree of sixteen nodes, more rows than registers can hold."""
    return tree_of(range(40, 56), [-1, 0, 0, 1, 1, 2, 3, 3, 6, 6, 4, 5, 8, 9, 12, 12])


def scores(target: TargetModel, tree: DraftTree):
    cache = target.new_cache(PROMPT + 16)
    target.prefill(torch.arange(PROMPT) + 3, cache)
    return target.score(tree, cache), cache


@pytest.mark.parametrize("layers", [(), (1, 2)])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("attention_bias", [False, True])
def test_compiled_pass_equals_torch_operations(half, attention_bias, layers, target_of):
    config = {"half": half, "attention_bias": attention_bias, "mlp_bias": attention_bias, "feature_layers": layers}
    tree = bushy_tree()
    compiled, cache = scores(target_of(True, **config), tree)
    plain, plain_cache = scores(target_of(False, **config), tree)
    torch.testing.assert_close(compiled.logits, plain.logits, atol=2e-3, rtol=1e-4)
    torch.testing.assert_close(compiled.features, plain.features, atol=2e-3, rtol=1e-4)
    assert compiled.features.shape[1] == 72 * (1 + len(layers))
    for layer, expected in zip(cache.layers, plain_cache.layers, strict=True):
        assert layer.length == expected.length == PROMPT + 16
        torch.testing.assert_close(layer.keys.double(), expected.keys.double(), atol=2e-3, rtol=1e-4)
        torch.testing.assert_close(layer.values.double(), expected.values.double(), atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("half", [False, True])
def test_every_path_of_a_tree_equals_its_tokens_one_by_one(half, target_of):
    target, tree = target_of(True, half), bushy_tree()
    together, cache = scores(target, tree)
    cache.keep(PROMPT, [])
    for path in ([0, 1, 3, 6, 8, 12, 15], [0, 2, 5, 11], [0, 1, 4, 10]):
        for node in path:
            committed = cache.length
            single = target.score(DraftTree.root_only(tree.token_ids[node : node + 1]), cache)
            assert torch.equal(single.logits[0], together.logits[node])
            cache.keep(committed, [0])
        cache.keep(PROMPT, [])


def test_gates_without_full_panels_run_in_torch(target_of):
    target = target_of(True, expect=False, intermediate_size=90)
    assert not target.compiled and target.bit_identical


CHOICES = [
    SamplingParams(0),
    SamplingParams(0.6),
    SamplingParams(1.0),
    SamplingParams(0.6, top_p=0.8),
    SamplingParams(1.0, top_p=0.99, top_k=20),
    SamplingParams(1.9, top_k=5),
    SamplingParams(1.9, min_p=0.2),
    SamplingParams(0.7, top_p=0.9, top_k=30, min_p=0.05),
]


@pytest.mark.parametrize("vocab_size", [9, 37, 4096, 5003])
@pytest.mark.parametrize(
    "sampling", CHOICES, ids=lambda choice: f"{choice.temperature} {choice.top_p} {choice.top_k} {choice.min_p}"
)
def test_verification_and_noise_equal_torch_operations(vocab_size, sampling, monkeypatch):
    sampling, vocabulary = replace(sampling, seed=2**63 - 5), torch.arange(vocab_size)
    noise = KeyedNoise(sampling.seed)
    rows, generator = NoiseRows(noise, vocabulary).rows(7, 17), torch.Generator().manual_seed(vocab_size)
    assert torch.equal(rows, noise.at(torch.arange(7, 24)[:, None], vocabulary))
    ends = set()
    for nodes in (1, 2, 16) * 6:
        logits = 4 * torch.randn((nodes, vocab_size), generator=generator)
        logits[0, :4] = logits[0].max() + 1
        parents = [-1, *(int(torch.randint(node, (), generator=generator)) for node in range(1, nodes))]
        depths = tree_of(range(nodes), parents).depths
        choices = choose(logits, sampling, noise, depths + 7, rows, depths, vocab_size).token_ids.tolist()
        # Siblings are distinct: the first one is accepted, unless the random number rejects all of them
        right = {parent: int(torch.randint(1, nodes + 1, (), generator=generator)) for parent in parents}
        first = {parent: parents.index(parent) for parent in parents}
        tokens = [
            (choices[max(parent, 0)] + (node - first[parent]) + (right[parent] == 1)) % vocab_size
            for node, parent in enumerate(parents)
        ]
        tree = tree_of(tokens, parents)
        arguments = (tree, ancestor_mask(tree.parents, tree.max_depth), logits, sampling, noise, 6, rows, vocab_size)
        actual = verify(*arguments)
        with monkeypatch.context() as patch:
            patch.setattr("jakiro.ops.kernels.current", lambda: kernels.TORCH)
            expected = verify(*arguments)
        for name in ("choices", "on_path"):
            assert torch.equal(getattr(actual, name), getattr(expected, name)), name
        assert (actual.end, actual.needs_full_sort) == (int(expected.end), bool(expected.needs_full_sort))
        torch.testing.assert_close(actual.margins, expected.margins, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(actual.target_probs, expected.target_probs, atol=1e-7, rtol=5e-6, equal_nan=True)
        ends.add(int(depths[actual.end]))
    assert len(ends) > 2


@settings(max_examples=150)
@given(
    st.sampled_from([7, 40, 700]),
    st.sampled_from([0.3, 0.7, 1.0, 1.9]),
    st.sampled_from([1.0, 0.95, 0.8, 0.5, 0.1, 1e-6]),
    st.sampled_from([0, 1, 3, 20, 59, 900]),
    st.sampled_from([0, 0, 0.1, 0.9, 1]),
    st.sampled_from([0.3, 3.0, 40.0]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_filtered_choice_and_margin_equal_torch_operations_bit_by_bit(
    vocab_size, temperature, top_p, top_k, min_p, spread, ties, masked, seed
):
    """Includes many ties, and masks that leave few tokens."""
    sampling, random = SamplingParams(temperature, top_p, top_k, seed, min_p=min_p), torch.Generator().manual_seed(seed)
    logits = torch.randn((4, vocab_size), generator=random) * spread
    logits = (2 * logits).round() / 2 if ties else logits
    if masked:
        logits[torch.rand(logits.shape, generator=random) < 0.8] = -torch.inf
        logits[:, 3] = 0.0
    tree = tree_of([1, 2, 3, 4], [-1, 0, 0, 2])
    noise = KeyedNoise(seed)
    rows = NoiseRows(noise, torch.arange(vocab_size)).rows(10, 3)
    actual = verify(tree, ancestor_mask(tree.parents, 2), logits, sampling, noise, 9, rows)
    expected = choose(logits, sampling, noise, tree.depths + 10, prefix_length=vocab_size)
    assert torch.equal(actual.choices, expected.token_ids)
    assert torch.equal(actual.margins, expected.margins)


@pytest.mark.parametrize(("tokens", "width"), [(9, 9), (37, 8), (5003, 8), (5003, 64)])
@pytest.mark.parametrize("noisy", [False, True])
def test_best_tokens_and_their_probabilities_equal_torch_operations(tokens, width, noisy):
    scores, noise = 3 * torch.randn(5, tokens), torch.randn(tokens) if noisy else None
    places, estimates, chances = best_tokens(scores, 0.8, noise, 1.3, width)
    ranked = scores * 0.8 + (1.3 * noise if noisy else 0)
    assert torch.equal(places, ranked.sort(dim=-1, descending=True, stable=True).indices[:, :width])
    torch.testing.assert_close(estimates, ranked.log_softmax(-1).gather(-1, places), atol=5e-6, rtol=1e-5)
    torch.testing.assert_close(chances, scores.softmax(-1).gather(-1, places), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("experts", "rows", "tokens", "width"), [(2, 1, 333, 8), (2, 5, 5003, 8), (3, 2, 37, 37)])
@pytest.mark.parametrize("noisy", [False, True])
def test_best_of_a_mixture_are_the_best_of_its_rows(experts, rows, tokens, width, noisy):
    generator = torch.Generator().manual_seed(tokens)
    logits = 3 * torch.randn((experts, rows, tokens), generator=generator)
    log_weights = (0.1 * torch.randn((experts, rows), generator=generator)).log_softmax(0)
    noise = torch.randn(tokens, generator=generator) if noisy else None
    places, estimates, chances, proposers = best_of_mixture(logits, log_weights, 0.8, noise, 1.3, width)
    mixed = Experts(logits, log_weights)
    log_q, offsets = mixed.mixed()
    expected = best_tokens(log_q, 0.8, noise, 1.3, width)
    assert torch.equal(places, expected[0])
    torch.testing.assert_close(estimates, expected[1], atol=5e-6, rtol=1e-5)
    torch.testing.assert_close(chances, expected[2], atol=1e-6, rtol=1e-5)
    assert torch.equal(proposers, mixed.proposers(offsets, places)) and len(proposers.unique()) > 1


def test_lower_position_comes_first_among_equal_scores():
    places, _, _ = best_tokens(torch.tensor([[0.0, 2.0, 2.0, 1.0, 2.0, 1.0]]), 1.0, None, 1.0, 5)
    assert places.tolist() == [[1, 2, 4, 3, 5]]


def reason(tmp_path, **environment) -> str:
    """Return whether a new process uses torch, and the reason."""
    code = "from jakiro.ops.kernels import TORCH, current, unavailable_reason as r; print(current() is TORCH, r())"
    names = {"JAKIRO_CACHE": str(tmp_path)} | environment
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | names)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def broken_compiler(folder: Path) -> Path:
    """Write a `cc` that fails."""
    broken = folder / "cc"
    broken.write_text("#!/bin/sh\necho 'no such option' >&2\nexit 1\n")
    broken.chmod(0o755)
    return broken


@pytest.mark.rare
def test_reason_is_given_without_compiled_functions(tmp_path):
    assert reason(tmp_path, JAKIRO_NATIVE="0") == "True JAKIRO_NATIVE is 0"
    assert reason(tmp_path, PATH=str(tmp_path), CC="") == "True no C compiler was found; install gcc, or name one in CC"
    broken = broken_compiler(tmp_path)
    assert reason(tmp_path / "else", PATH=str(tmp_path), CC="") == f"True {broken} did not build it (no such option)"


def test_compiler_timeout_is_a_reason(monkeypatch):
    """Output before the timeout is bytes, even in text mode."""
    late = subprocess.TimeoutExpired(["cc"], 120, stderr=b"still at work")
    monkeypatch.setattr(compiled_library, "built", Mock(side_effect=late))
    monkeypatch.setattr(compiled_library, "compilers", lambda: iter([["cc"]]))
    assert compiled_library._load_once.__wrapped__() == (None, "cc did not build it (still at work)")


@pytest.mark.rare
@pytest.mark.anywhere
def test_second_compiler_is_used_after_a_broken_one_and_its_library_is_cached(tmp_path):
    broken_compiler(tmp_path)
    compilers = {"PATH": f"{tmp_path}:/bin:/usr/bin", "CC": ""}
    assert reason(tmp_path, **compilers) == "False None"
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "native").iterdir()}
    assert sorted(path.suffix for path in files) == [".sha256", ".so"]
    assert reason(tmp_path, **compilers) == "False None"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "native").iterdir()} == files


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_inputs_of_another_dtype_are_refused(dtype):
    weight = torch.randn(40, 24)
    for layer in (NativeLinear(weight, None), CompiledInt8Linear(weight, None)):
        with pytest.raises(ValueError, match=f"multiply float32; these numbers are {dtype}"):
            layer(torch.randn(2, 24).to(dtype))


def test_sum_of_weights_does_not_depend_on_the_slots_of_keys():
    """Put visible keys into other slots, with hidden keys between them."""
    generator, slots, keys = torch.Generator().manual_seed(7), 640, 211
    seen = 3 * torch.randn(keys, generator=generator)
    exact = (seen.double() - seen.double().max()).exp().sum()
    sums, weights = set(), []
    for _ in range(20):
        scores, places = torch.full((slots,), -3e38), torch.randperm(slots, generator=generator)[:keys]
        scores[places] = seen
        sums.add(library().jakiro_weigh(scores.data_ptr(), slots))
        weights.append(scores[places])
        assert scores.count_nonzero() == keys
    assert len(sums) == 1 and sums.pop() == pytest.approx(float(exact), rel=1e-7)
    assert all(torch.equal(row, weights[0]) for row in weights)


OUT_OF_MEMORY = """
import resource, torch
from pathlib import Path
from unittest.mock import Mock
from jakiro.backends.native.linear import CompiledInt8Linear
layer, rows = CompiledInt8Linear(torch.randn(32, 4096), None), torch.zeros(6400, 4096)
layer(rows[:2])
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**25, -1))
try:
    layer(rows)
except RuntimeError as error:
    print(str(error))
"""


def test_out_of_memory_is_an_error_and_the_process_continues():
    run = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert is_out_of_memory(RuntimeError(run.stdout)), run.stdout
