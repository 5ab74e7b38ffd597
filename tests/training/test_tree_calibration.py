"""Shares of promised chances that trees keep, from steps whose numbers are known and from real trees."""

import math

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.methods import METHODS
from jakiro.training.calibrate import PRIOR, kept_shares, shares_by_level
from jakiro.training.replay import Answer, ReplayedStep
from tests.training.tiny import features_of, tiny_head, tiny_target


def step(chances: tuple[float, ...], accepted: int) -> ReplayedStep:
    return ReplayedStep((), tuple(range(1, accepted + 1)), len(chances), ("expert:0",) * accepted, chances)


def test_a_share_is_kept_over_expected_where_the_level_above_was_kept():
    steps = [*[step((0.8, 0.6), 2)] * 10, *[step((0.8, 0.6), 1)] * 10, *[step((0.8,), 0)] * 20]
    shares = shares_by_level(steps)
    assert shares == pytest.approx({1: (20 + PRIOR) / (32 + PRIOR), 2: (10 + PRIOR) / (12 + PRIOR)})


def answered(target, temperature: float, count: int) -> list[tuple[SamplingParams, list[Answer]]]:
    """Random texts, which a head that has learned nothing drafts badly for."""
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(2, 40, (40,), generator=generator) for _ in range(count)]
    answers = [Answer(ids, features_of(target)(ids[None])[0], 4, 34) for ids in texts]
    return [(SamplingParams(temperature=temperature, max_new_tokens=31), answers)]


@pytest.mark.parametrize("fusion", ["summed", "decoupled"])
def test_every_branch_and_level_gets_its_share_and_trees_then_promise_less(fusion):
    target = tiny_target()
    head = tiny_head(target, fusion, draft_vocab=30)
    weights = {f"main/{depth}/sampled": 4.0 for depth in range(1, 7)}
    head.config.calibration.update(weights | {"main/1/sampled-kept": 0.5})
    drafter = METHODS.drafter_of(head)
    before = dict(head.config.calibration)
    found = kept_shares(head, drafter, answered(target, 1.0, 3))
    assert head.config.calibration == before
    branches = {name.split("/")[0] for name in found}
    assert branches == ({"main", "contrastive"} if fusion == "summed" else {"main"})
    assert all(name.endswith("/sampled-kept") and 0 < share <= 1 for name, share in found.items())
    # Weights that are far too sure of random text
    assert found["main/1/sampled-kept"] < 0.9
    head.config.calibration.update(found)
    again = kept_shares(head, drafter, answered(target, 1.0, 3))
    assert again == found and all(math.isfinite(share) for share in again.values())
