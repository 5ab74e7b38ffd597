"""MCSD with independent draws: their law, and their trees."""

import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import DraftRequest
from lab.methods.mcsd_replacing import ReplacingGrower, replacing_drafter, split_times
from lab.tests.published.test_mcsd import SEEDS, Q, chi_square, draw_two, started


def test_split_times_give_independent_draws():
    # With 24 degrees of freedom, one in a thousand samples exceeds 51.2
    assert chi_square([draw_two(ReplacingGrower, seed) for seed in range(SEEDS)], Q[:, None] * Q[None]) < 51.2


def test_split_times_are_consistent_with_the_target_s_noise():
    noise = KeyedNoise(3).at(torch.tensor(8), torch.arange(50))
    times = split_times(noise, 3, 8, 4)
    torch.testing.assert_close(times.amin(0) * 4, (-noise).exp())
    assert times.argmin(0).bincount(minlength=4).min() > 4


def test_independent_draws_are_one_chain_at_temperature_zero(heads):
    session = started(replacing_drafter(heads["decoupled"]), SamplingParams())
    assert session.propose(DraftRequest(TreeConfig(8, 3, 21))).tree.parents.tolist() == [-1, 0, 1, 2]
