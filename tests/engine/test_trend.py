"""The line through recent pairs."""

import pytest

from jakiro.engine.trend import Trend


def test_it_starts_from_its_guess_and_learns_the_slope():
    trend = Trend(0.8, 2.0)
    assert trend.rise(9.0) == 0.0
    trend.observe(1.0, 2.0)
    assert trend.rise(2.0) == pytest.approx(0.8)
    for number in range(200):
        trend.observe(number % 5, 3.0 * (number % 5) + 1.0)
    assert trend.slope == pytest.approx(3.0, abs=0.1)
    assert trend.rise(4.0) - trend.rise(2.0) == pytest.approx(2 * trend.slope)
    assert trend.rise(2.0) == pytest.approx(0.0, abs=0.5)


def test_old_pairs_are_forgotten():
    trend = Trend(0.0, 1.0)
    for slope in (2.0, -2.0):
        for number in range(300):
            trend.observe(number % 3, slope * (number % 3))
    assert trend.slope == pytest.approx(-2.0, abs=0.1)
