"""Calibration of a head by temperature, with numbers on the host and on a device."""

import math

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.core.sampling import DeviceSampling
from jakiro.heads.calibration import Calibration

NUMBERS = {
    "main/2/greedy": 1.5, "main/2/greedy-kept": 0.5,
    "main/2/sampled": 1.3, "main/2/noise": 1.1, "main/2/sampled-kept": 0.8,
    "main/2/sampled-0.7": 0.9, "main/2/noise-0.7": 0.5, "main/2/sampled-0.7-kept": 0.4,
}  # fmt: skip


def on_device(temperature: float) -> DeviceSampling:
    return DeviceSampling(greedy=False, temperature=torch.tensor(temperature))


@pytest.mark.parametrize(
    ("temperature", "weights"),
    [
        (0.2, (0.9, 0.5, math.log(0.4))),
        (0.7, (0.9, 0.5, math.log(0.4))),
        (0.85, (1.1, 0.8, (math.log(0.4) + math.log(0.8)) / 2)),
        (1.0, (1.3, 1.1, math.log(0.8))),
        (1.6, (1.3, 1.1, math.log(0.8))),
    ],
)
def test_calibration_is_interpolated_between_two_temperatures(temperature, weights):
    on_host = Calibration(NUMBERS, SamplingParams(temperature=temperature)).at("main/2")
    assert on_host == pytest.approx(weights)
    captured = Calibration(NUMBERS, on_device(temperature)).at("main/2")
    assert all(isinstance(weight, torch.Tensor) for weight in captured)
    assert [float(weight) for weight in captured] == pytest.approx(weights, abs=1e-6)


def test_greedy_decoding_has_its_own_numbers():
    assert Calibration(NUMBERS, SamplingParams(temperature=0)).at("main/2") == (1.5, 1.5, math.log(0.5))


def test_missing_number_is_replaced_by_the_next_available_one():
    sampled = SamplingParams(temperature=0.7)
    assert Calibration({}, sampled).at("main/1") == (1.0, 1.0, 0.0)
    assert Calibration({"main/1/sampled": 1.2}, sampled).at("main/1") == (1.2, 1.2, 0.0)
    both = {"main/1/sampled": 1.2, "main/1/noise": 1.1, "main/1/sampled-kept": 0.9}
    assert Calibration(both, sampled).at("main/1") == (1.2, 1.1, math.log(0.9))
    # Numbers that do not depend on the temperature stay on the host
    assert Calibration(both, on_device(0.8)).at("main/1") == (1.2, 1.1, math.log(0.9))
