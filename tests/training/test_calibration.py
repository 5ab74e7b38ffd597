import pytest
import torch

from jakiro.training.calibrate import BOUNDS, fit_calibration, fit_weights
from jakiro.training.losses import LossWeights, Objective
from jakiro.training.validation import held_out
from tests.training.tiny import tiny_cache, tiny_head, tiny_target


def test_planted_weights_of_log_q_and_noise_are_recovered():
    generator = torch.Generator().manual_seed(0)
    log_q = torch.randn(6000, 30, generator=generator).mul(2).log_softmax(-1)
    noise = -torch.empty_like(log_q).exponential_(generator=generator).log_()
    chosen = torch.multinomial((1.6 * log_q + 0.7 * noise).softmax(-1), 1, generator=generator)[:, 0]
    assert fit_weights([log_q, noise], chosen) == pytest.approx([1.6, 0.7], rel=0.05)


def test_rows_without_a_choice_are_left_out_and_bounds_hold():
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
