import pytest
import torch

from jakiro.training.calibration import BOUNDS, calibrate, fit_beta
from tests.training.tiny import tiny_cache, tiny_head, tiny_target


@pytest.mark.parametrize("planted", [0.5, 1.0, 2.5])
def test_a_planted_beta_is_recovered(planted):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(6000, 30, generator=generator).mul(2).log_softmax(-1)
    chosen = torch.multinomial((planted * z).softmax(-1), 1, generator=generator)[:, 0]
    assert fit_beta(z, chosen) == pytest.approx(planted, rel=0.05)


def test_rows_without_a_choice_are_left_out_and_bounds_hold():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(500, 10, generator=generator).log_softmax(-1)
    best = z.argmax(-1)
    assert fit_beta(z, best) == BOUNDS[1]
    assert fit_beta(z, torch.where(torch.arange(500) < 250, best, -1)) == BOUNDS[1]
    assert fit_beta(z, z.argmin(-1)) == BOUNDS[0]


def test_noise_shared_with_the_target_calls_for_a_larger_beta():
    """With q = p and the same noise the first guess is always right, so certainty is what fits."""
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(2000, 20, generator=generator).log_softmax(-1)
    noise = -torch.empty_like(log_probs).exponential_(generator=generator).log_()
    assert fit_beta(log_probs + noise, (log_probs + noise).argmax(-1)) == BOUNDS[1]


@pytest.mark.parametrize("fusion", ["summed", "decoupled"])
def test_every_depth_branch_and_regime_gets_its_beta(tmp_path, fusion):
    target = tiny_target()
    cache = tiny_cache(tmp_path, target)
    head = tiny_head(target, fusion, draft_vocab=30)
    fitted = calibrate(head, [cache.batch([0, 1, 2, 3])], target.lm_head.weight, seed=0)
    expected = {f"main/{depth}/{regime}" for depth in range(1, 7) for regime in ("greedy", "sampled")}
    if fusion == "summed":
        expected |= {f"contrastive/{depth}/{regime}" for depth in range(2, 7) for regime in ("greedy", "sampled")}
    assert set(fitted) == expected
    assert all(BOUNDS[0] <= beta <= BOUNDS[1] for beta in fitted.values())
