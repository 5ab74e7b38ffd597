"""Sampling: warping as in transformers, noise checked with Python integers, and the choice of a token."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jakiro.config import SamplingParams
from jakiro.core.noise import KeyedNoise, NoiseRows
from jakiro.core.sampling import choose, prefix_for, warp
from tests.support import DEVICE, prompt_ids, reference_answer, scripted_generator, tiny_model, warpers

MASK = 2**64 - 1


def mix(x):
    """Return SplitMix64's finalizer of a Python integer."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def hash_of(seed, position, token):
    return mix((mix((mix(seed) + position) & MASK) + (token + 1) * 0x9E3779B97F4A7C15) & MASK)


def as_signed(x):
    return x - 2**64 if x >= 2**63 else x


def on_device(values, **kwargs):
    return torch.tensor(values, device=DEVICE, **kwargs)


def row_of_positions(count, first=0):
    return torch.arange(first, first + count, device=DEVICE)


def scattered(warped, vocab_size):
    """Return warped logits in vocabulary order, with −inf for dropped tokens."""
    full = torch.full((warped.logits.shape[0], vocab_size), -torch.inf, device=DEVICE)
    return full.scatter(-1, warped.token_ids, warped.logits)


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**63 - 1])
def test_hash_equals_a_reference_on_python_integers(seed):
    positions, tokens = [0, 1, 2047, 131071], [0, 1, 2, 49151, 262143]
    hashes = KeyedNoise(seed).hash(on_device(positions)[:, None], on_device(tokens)).tolist()
    assert hashes == [[as_signed(hash_of(seed, position, token)) for token in tokens] for position in positions]


def test_the_noise_is_the_gumbel_transform_of_the_hash():
    positions, tokens = list(range(40)), list(range(0, 4000, 37))
    noise = KeyedNoise(11).at(on_device(positions)[:, None], on_device(tokens))
    assert noise.dtype == torch.float32
    for position, row in zip(positions, noise.tolist(), strict=True):
        for token, value in zip(tokens, row, strict=True):
            uniform = ((hash_of(11, position, token) >> 12) + 0.5) / 2**52
            assert value == pytest.approx(-math.log(-math.log(uniform)), abs=1e-6)


def test_the_largest_and_the_smallest_hash_give_finite_noise(monkeypatch):
    monkeypatch.setattr(KeyedNoise, "hash", lambda self, positions, token_ids: token_ids)
    noise = KeyedNoise(0).at(on_device(0), on_device([-1, 0, 2**63 - 1, -(2**63)]))
    assert torch.isfinite(noise).all()
    assert noise[0] > 30 and noise[1] < -3


def test_noise_rows_are_computed_once_and_match_their_positions():
    vocabulary, calls = torch.arange(50, device=DEVICE), []

    class CountingNoise(KeyedNoise):
        def at(self, positions, token_ids):
            calls.append(positions.flatten().tolist())
            return super().at(positions, token_ids)

    rows = NoiseRows(CountingNoise(9), vocabulary)
    for first, count in [(10, 4), (10, 4), (12, 5), (40, 2), (41, 1)]:
        expected = KeyedNoise(9).at(row_of_positions(count, first)[:, None], vocabulary)
        assert torch.equal(rows.rows(first, count), expected)
    assert calls == [[10, 11, 12, 13], [14, 15, 16], [40, 41]]


def test_columns_of_shared_noise_rows_equal_the_noise_of_their_tokens():
    vocabulary, subset = torch.arange(50, device=DEVICE), on_device([3, 7, 31])
    shared, separate = KeyedNoise(9).over(vocabulary).over(subset), KeyedNoise(9).over(subset)
    for first, count in ((4, 3), (5, 4), (9, 1)):
        assert torch.equal(shared.rows(first, count), separate.rows(first, count))


WARPINGS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.9]),
    top_p=st.sampled_from([1.0, 0.95, 0.8, 0.5, 0.1, 1e-6]),
    top_k=st.sampled_from([0, 1, 3, 20, 59, 60, 100]),
)


@settings(max_examples=100)
@given(WARPINGS, st.integers(0, 2**32), st.floats(0.1, 6))
def test_warping_equals_transformers_warpers_on_random_rows(sampling, seed, spread):
    logits = (torch.randn((4, 60), generator=torch.Generator().manual_seed(seed)) * spread).to(DEVICE)
    warped = warp(logits, sampling, 60)
    assert not warped.needs_full_sort.any()
    assert torch.equal(scattered(warped, 60), warpers(sampling)(None, logits))


@settings(max_examples=100)
@given(WARPINGS, st.integers(0, 2**32), st.integers(2, 12))
def test_warping_keeps_the_tokens_of_transformers_and_all_ties_with_the_last_one(sampling, seed, levels):
    logits = torch.randint(0, levels, (4, 60), generator=torch.Generator().manual_seed(seed)).float().to(DEVICE)
    ours, theirs = scattered(warp(logits, sampling, 60), 60), warpers(sampling)(None, logits)
    for row, expected, values in zip(ours, theirs, logits, strict=True):
        is_kept, is_kept_by_theirs = torch.isfinite(row), torch.isfinite(expected)
        assert (is_kept | ~is_kept_by_theirs).all()
        assert torch.equal(is_kept, values >= values[is_kept_by_theirs].min())
        assert torch.equal(row[is_kept_by_theirs], expected[is_kept_by_theirs])


def test_token_is_dropped_if_the_probability_before_it_equals_top_p():
    """The probability before a kept token is less than top-p, as in transformers."""
    logits = torch.tensor([[2.0, 1.0, 0.0, -3.0]], device=DEVICE)
    probs = (logits.double() - logits.double().logsumexp(-1, keepdim=True)).exp()
    before = probs.cumsum(-1) - probs
    for num_kept in (1, 2, 3):
        top_p = float(before[0, num_kept])
        for limit, expected in ((top_p, num_kept), (math.nextafter(top_p, 1), num_kept + 1)):
            row = scattered(warp(logits, SamplingParams(1.0, top_p=limit), 4), 4)
            assert int(torch.isfinite(row).sum()) == expected


@settings(max_examples=100)
@given(WARPINGS, st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 3.0]), st.integers(1, 30))
def test_short_prefix_gives_the_choice_of_the_full_sort_or_reports_that_it_is_too_short(sampling, seed, spread, prefix):
    if sampling.top_p == 1 and sampling.top_k == 0:
        return
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn((6, 60), generator=generator) * spread).mul(4).round().div(4).to(DEVICE)
    short = choose(logits, sampling, KeyedNoise(seed), row_of_positions(6), prefix_length=prefix)
    full = choose(logits, sampling, KeyedNoise(seed), row_of_positions(6), prefix_length=60)
    assert not full.needs_full_sort.any()
    settled = ~short.needs_full_sort
    assert torch.equal(short.token_ids[settled], full.token_ids[settled])
    several = settled & torch.isfinite(full.margins)
    assert torch.equal(short.margins[several], full.margins[several])


class ConstantNoise(KeyedNoise):
    """Noise with the same value everywhere, so that ties remain ties."""

    def at(self, positions, token_ids):
        shape = torch.broadcast_shapes(positions.shape, token_ids.shape)
        return torch.zeros(shape, device=token_ids.device)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(1.0), SamplingParams(1.0, top_p=0.9), SamplingParams(1.0, top_k=4)]
)
def test_lowest_id_wins_a_tie_when_sampling(sampling):
    logits = torch.full((1, 600), -4.0, device=DEVICE)
    logits[0, [300, 41, 599]] = 9.0
    choice = choose(logits, sampling, ConstantNoise(0), row_of_positions(1))
    assert (choice.token_ids.tolist(), choice.margins.tolist()) == ([41], [0.0])


@pytest.mark.parametrize(
    "sampling", [SamplingParams(0.7), SamplingParams(0.7, top_p=0.8), SamplingParams(0.7, top_k=9)]
)
def test_a_sample_is_the_argmax_of_warped_logits_plus_noise(sampling):
    logits = torch.randn((8, 60), generator=torch.Generator().manual_seed(1)).mul(2).to(DEVICE)
    positions = row_of_positions(8, 100)
    noise = KeyedNoise(6).at(positions[:, None], torch.arange(60, device=DEVICE))
    scores = warpers(sampling)(None, logits) + noise
    choice = choose(logits, sampling, KeyedNoise(6), positions)
    assert torch.equal(choice.token_ids, scores.argmax(-1))
    best = scores.topk(2).values
    torch.testing.assert_close(choice.margins, best[:, 0] - best[:, 1])


def test_reread_step_returns_the_reference_text_and_is_marked_in_its_plan(without_compiled_functions):
    flat = SamplingParams(temperature=2.0, top_p=0.99, seed=4, max_new_tokens=24)
    peaked = SamplingParams(temperature=0.3, top_p=0.9, seed=4, max_new_tokens=24)
    generator = scripted_generator(vocab_size=1500)
    for sampling, rereads in ((flat, True), (peaked, False)):
        expected = reference_answer(tiny_model(vocab_size=1500), prompt_ids("Tell me."), sampling)
        for method in ("jakiro", "autoregressive"):
            trace = generator.run("Tell me.", sampling, method=method)
            assert trace.token_ids == expected
            assert {step.plan.reread for step in trace.steps} == {rereads}


@pytest.mark.parametrize("vocab_size", [256, 384, 300, 128])
def test_lowest_id_wins_and_margin_is_the_lead_at_all_positions(vocab_size):
    last = vocab_size - 1
    places = [(0, 1), (1, 0), (5, 127), (127, 5), (0, last), (last, 0), (7, 8), (130 % vocab_size, 3)]
    scores = torch.full((2 * len(places), vocab_size), -1.0)
    for row, (best, second) in enumerate(places):
        scores[2 * row, best], scores[2 * row, second] = 2.0, 1.5
        scores[2 * row + 1, [best, second]] = 2.0
    choice = choose(scores, SamplingParams(), KeyedNoise(0), torch.zeros(len(scores), dtype=torch.int64))
    assert choice.token_ids.tolist() == [token for best, second in places for token in (best, min(best, second))]
    assert choice.margins.tolist() == [0.5, 0.0] * len(places)


def test_ties_of_top_k_beyond_the_prefix_are_all_kept_with_top_p():
    logits = on_device([10.0] * 29 + [5.0] * 1971 + [0.0] * 500)[None]
    sampling = SamplingParams(1.0, top_p=0.9, top_k=30)
    # The first 29 tokens of the prefix exceed nine tenths of the probability
    assert bool(warp(logits, sampling, 64).needs_full_sort)
    assert int(warp(logits, sampling, logits.shape[-1]).logits.isfinite().sum()) == 2000
    # A prefix with all ties settles top-k
    assert not bool(warp(logits, sampling, 2001).needs_full_sort)


def test_prefix_extends_one_token_beyond_top_k():
    warped = warp(on_device([[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]]), SamplingParams(1.0, top_k=3), 1)
    assert warped.logits.isfinite().sum() == 3 and not warped.needs_full_sort.any()
    assert [prefix_for(top_k) for top_k in (0, 511, 512, 1023, 1024)] == [512, 512, 1024, 1024, 2048]


@pytest.mark.parametrize(("min_p", "temperature", "num_kept"), [(0.29, 1.0, 3), (0.29, 2.0, 4), (0.61, 1.0, 1)])
def test_min_p_is_relative_to_the_best_token_at_this_temperature(min_p, temperature, num_kept):
    logits = on_device([[0.5, 0.3, 0.15, 0.05]]).log()
    assert warp(logits, SamplingParams(temperature, min_p=min_p), 4).logits.isfinite().sum() == num_kept


def test_row_uses_the_noise_of_its_level():
    noise_rows = torch.zeros((2, 8), device=DEVICE)
    noise_rows[0, 1], noise_rows[1, 5] = 9.0, 9.0
    positions, levels = row_of_positions(3), on_device([1, 0, 1])
    choice = choose(
        torch.zeros((3, 8), device=DEVICE), SamplingParams(1.0), KeyedNoise(0), positions, noise_rows, levels
    )
    assert choice.token_ids.tolist() == [5, 1, 5]


def test_single_token_has_an_infinite_margin():
    choice = choose(on_device([[3.0]]), SamplingParams(), KeyedNoise(0), row_of_positions(1))
    assert choice.token_ids.tolist() == [0] and choice.margins.tolist() == [math.inf]
