"""Sums of distances between distributions over texts, and timed readings of prompts."""

import math

import pytest
import torch

from lab.measuring.distance import Distance, texts
from lab.measuring.prefill import OURS, STOCK, Reading, read_prompts, sentence_of
from tests.support import byte_tokenizer


def test_a_distance_is_the_mean_kl_in_nats_and_the_share_of_equal_first_choices():
    reference = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    distance = Distance()
    distance.add(reference.log(), torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]))
    halves = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    tenths = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert distance.means() == {"tokens": 2, "kl": pytest.approx((halves + tenths) / 2), "same": 0.5}


def test_texts_have_equal_lengths_and_do_not_repeat():
    pieces = list(texts(byte_tokenizer(), [], 40, 12))
    assert len(pieces) == 12 and {len(ids) for ids in pieces} == {40}
    assert len({tuple(ids.tolist()) for ids in pieces}) == 12


def test_lanes_alternate_after_an_untimed_reading():
    log = []

    def reader(lane):
        return lambda prompt: (log.append((lane, len(prompt))), float(len(log)))[1]

    readings = list(read_prompts({OURS: reader(OURS), STOCK: reader(STOCK)}, range(9), (4, 9), 2))
    order = [OURS, STOCK, OURS, STOCK, STOCK, OURS]
    assert log == [(lane, length) for length in (4, 9) for lane in order]
    assert [reading.num_tokens for reading in readings] == [4, 9]
    assert readings[0].seconds == {OURS: (3.0, 6.0), STOCK: (4.0, 5.0)}


def test_our_share_is_against_the_fastest_other_lane_in_the_median_round():
    reading = Reading(100, {OURS: (2.0, 4.0, 2.0), STOCK: (1.0, 8.0, 4.0), "third": (9.0, 6.0, 3.0)})
    assert reading.share == 1.5
    assert reading.tokens_per_second(OURS) == 50.0
    assert sentence_of(reading).endswith("tokens/s; Jakiro has 150 % of the best.")
