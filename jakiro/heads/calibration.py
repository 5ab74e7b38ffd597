"""Calibration of a head's log probabilities to probabilities that the target chooses a child.

The probability is kept · softmax(a · log q + b · g) with the target's own noise g. The numbers are in `DraftConfig`.
The keys of level 2 of the main branch, with the default value in brackets:

    main/2/greedy         a at temperature 0 (1)
    main/2/sampled        a at temperature 1 (1)
    main/2/noise          b at temperature 1 (a)
    main/2/sampled-0.7    a at temperature 0.7 (that of 1)
    main/2/noise-0.7      b at temperature 0.7 (that of 1)
    main/2/…-kept         kept, with "greedy", "sampled" or "sampled-0.7" (1; for 0.7 that of 1)

`jakiro/training/calibrate.py` fits them.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.sampling import DeviceSampling

# Temperatures at which numbers are fitted, besides 0; numbers between them are interpolated linearly
LOW, HIGH = 0.7, 1.0


class Weights(NamedTuple):
    """a, b and log kept of one level; each is a number, or a () tensor on the device of the temperature."""

    log_q: float | Tensor
    noise: float | Tensor
    log_kept: float | Tensor


class Calibration:
    """Calibration at one temperature.

    Args:
        numbers: As in `DraftConfig.calibration`.
    """

    def __init__(self, numbers: Mapping[str, float], sampling: SamplingParams | DeviceSampling) -> None:
        self.numbers, self._sampling = numbers, sampling

    @cached_property
    def _share(self) -> float | Tensor:
        """Position of the temperature between `LOW` and `HIGH`, 0 to 1."""
        share = (self._sampling.temperature - LOW) / (HIGH - LOW)
        return share.clamp(0, 1) if isinstance(share, Tensor) else min(max(share, 0.0), 1.0)

    def at(self, level: str) -> Weights:
        """Return the weights of a level, named by its branch and depth, such as "main/2"."""
        get = self.numbers.get
        if self._sampling.greedy:
            weight = get(f"{level}/greedy", 1.0)
            return Weights(weight, weight, math.log(get(f"{level}/greedy-kept", 1.0)))
        log_q = get(f"{level}/sampled", 1.0)
        high = log_q, get(f"{level}/noise", log_q), math.log(get(f"{level}/sampled-kept", 1.0))
        low_kept = get(f"{level}/sampled-{LOW}-kept")
        low = (
            get(f"{level}/sampled-{LOW}", high[0]),
            get(f"{level}/noise-{LOW}", high[1]),
            high[2] if low_kept is None else math.log(low_kept),
        )
        return Weights(*map(self._between, low, high))

    def _between(self, low: float, high: float) -> float | Tensor:
        return low if low == high else low + self._share * (high - low)
