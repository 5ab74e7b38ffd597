"""How far an engine is from float32, as sums over texts."""

import math

import pytest
import torch

from lab.measuring.distance import Distance, texts
from tests.support import byte_tokenizer


def test_a_distance_is_the_mean_kl_in_nats_and_the_share_of_equal_first_choices():
    reference = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    found = Distance()
    found.add(reference.log(), torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]))
    halves = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    tenths = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert found.means() == {"tokens": 2, "kl": pytest.approx((halves + tenths) / 2), "same": 0.5}


def test_texts_have_one_length_and_none_comes_twice():
    found = list(texts(byte_tokenizer(), [], 40, 12))
    assert len(found) == 12 and {len(ids) for ids in found} == {40}
    assert len({tuple(ids.tolist()) for ids in found}) == 12
