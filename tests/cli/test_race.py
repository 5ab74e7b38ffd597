"""A race: lanes share one device, and the lane with the least time so far makes the next step."""

from types import SimpleNamespace

from jakiro.config import SamplingParams
from jakiro.generator import Race
from jakiro.trace import Trace
from tests.support import TREE

SAMPLING = SamplingParams(0.9, seed=5, max_new_tokens=40)


class Lane:
    """A stream with steps of a known duration."""

    def __init__(self, step_ms, count):
        self.step_ms, self.left = step_ms, count
        self.trace = SimpleNamespace(decode_seconds=0.0)

    @property
    def finished(self):
        return self.left == 0

    def __next__(self):
        self.left -= 1
        self.trace.decode_seconds += self.step_ms / 1000
        return self.step_ms


def test_lane_three_times_slower_makes_a_third_of_the_steps():
    order = [name for name, _ in Race({"slow": Lane(3, 4), "fast": Lane(1, 6)})]
    assert order == ["slow", "fast", "fast", "fast", "slow", "fast", "fast", "fast", "slow", "slow"]


def test_closing_a_race_stops_both_lanes(scripted):
    race = scripted.race("Who wins?", SAMPLING, tree=TREE)
    for _ in range(3):
        next(race)
    race.close()
    assert next(race, None) is None
    assert {trace.end_reason for trace in race.traces.values()} == {"stopped"}
    for trace in race.traces.values():
        assert Trace.from_json(trace.to_json()) == trace
