"""Fitted weights of log q and of noise, and the shares of predicted acceptance that trees achieve."""

import math

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.drafters.registry import METHODS
from jakiro.training.calibrate import BOUNDS, PRIOR, fit_calibration, fit_weights, kept_shares, shares_by_level
from jakiro.training.losses import LossWeights, Objective
from jakiro.training.replay import Answer, ReplayedStep
from jakiro.training.validation import held_out
from tests.marks import rarely
from tests.training.tiny import features_of, tiny_cache, tiny_head, tiny_target


def test_planted_weights_of_log_q_and_noise_are_recovered():
    generator = torch.Generator().manual_seed(0)
    log_q = torch.randn(6000, 30, generator=generator).mul(2).log_softmax(-1)
    noise = -torch.empty_like(log_q).exponential_(generator=generator).log_()
    chosen = torch.multinomial((1.6 * log_q + 0.7 * noise).softmax(-1), 1, generator=generator)[:, 0]
    assert fit_weights([log_q, noise], chosen) == pytest.approx([1.6, 0.7], rel=0.05)


def test_rows_without_a_choice_are_ignored_and_bounds_hold():
    generator = torch.Generator().manual_seed(0)
    log_q = torch.randn(500, 10, generator=generator).log_softmax(-1)
    best = log_q.argmax(-1)
    assert fit_weights([log_q], best) == [BOUNDS[1]]
    assert fit_weights([log_q], torch.where(torch.arange(500) < 250, best, -1)) == [BOUNDS[1]]
    assert fit_weights([log_q], log_q.argmin(-1)) == [BOUNDS[0]]


@pytest.mark.parametrize("fusion", ["summed", "decoupled"])
def test_every_depth_branch_and_regime_gets_its_weights(tmp_path, fusion):
    target = tiny_target()
    cache = tiny_cache(tmp_path, target)
    head = tiny_head(target, fusion, draft_vocab=30)
    fitted = fit_calibration(Objective(head, LossWeights()), held_out(cache, range(4), target.lm_head.weight), seed=0)
    regimes = ("greedy", "sampled", "noise", "sampled-0.7", "noise-0.7")
    expected = {f"main/{depth}/{regime}" for depth in range(1, 7) for regime in regimes}
    if fusion == "summed":
        expected |= {f"contrastive/{depth}/{regime}" for depth in range(2, 7) for regime in regimes}
    assert set(fitted) == expected
    assert all(BOUNDS[0] <= weight <= BOUNDS[1] for weight in fitted.values())


def step(chances: tuple[float, ...], accepted: int) -> ReplayedStep:
    return ReplayedStep((), tuple(range(1, accepted + 1)), len(chances), ("expert:0",) * accepted, chances)


def test_share_is_accepted_over_expected_where_the_level_above_was_accepted():
    steps = [*[step((0.8, 0.6), 2)] * 10, *[step((0.8, 0.6), 1)] * 10, *[step((0.8,), 0)] * 20]
    shares = shares_by_level(steps)
    assert shares == pytest.approx({1: (20 + PRIOR) / (32 + PRIOR), 2: (10 + PRIOR) / (12 + PRIOR)})


def answered(target, temperature: float, count: int) -> list[tuple[SamplingParams, list[Answer]]]:
    """Return random texts, for which an untrained head drafts badly."""
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(2, 40, (40,), generator=generator) for _ in range(count)]
    answers = [Answer(ids, features_of(target)(ids[None])[0], 4, 34) for ids in texts]
    return [(SamplingParams(temperature=temperature, max_new_tokens=31), answers)]


@pytest.mark.parametrize("fusion", [rarely("summed"), "decoupled"])
def test_every_branch_and_level_has_a_share_that_lowers_predictions(fusion):
    target = tiny_target()
    head = tiny_head(target, fusion, draft_vocab=30)
    weights = {f"main/{depth}/sampled": 4.0 for depth in range(1, 7)}
    head.config.calibration.update(weights)
    shares = kept_shares(METHODS.drafter_of(head), answered(target, 1.0, 3))
    assert head.config.calibration == weights
    branches = {name.split("/")[0] for name in shares}
    assert branches == ({"main", "contrastive"} if fusion == "summed" else {"main"})
    assert all(name.endswith("/sampled-kept") and 0 < share <= 1 for name, share in shares.items())
    # The weights overestimate acceptance on random text
    assert shares["main/1/sampled-kept"] < 0.9
    head.config.calibration.update(shares)
    again = kept_shares(METHODS.drafter_of(head), answered(target, 1.0, 3))
    assert shares["main/1/sampled-kept"] < again["main/1/sampled-kept"] <= 1
    assert all(math.isfinite(share) for share in again.values())
