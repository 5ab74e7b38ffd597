"""The clock behind every speedup: a step's time is the elapsed time, and each part has the time that belongs to it.

Time is a number that the fakes advance; nothing is measured.
"""

import pytest
import torch

from jakiro.backends import step_clock as clock
from jakiro.backends.step_clock import CudaStepClock, StepClock
from jakiro.backends.torch_backend import TorchSession
from jakiro.config import SamplingParams, TreeConfig
from jakiro.decode import recorder
from jakiro.decode.device_profile import DeviceProfile
from jakiro.decode.tree_budget import TreeBudget
from tests.support import ScriptedDrafter, ScriptedSession, scripted_generator

COSTS = {
    "start": 5.0,
    "choose": 2.0,
    "propose": 12.0,
    "score": 60.0,
    "verify": 7.0,
    "observe": 8.0,
    "record": 1.0,
    "learn": 3.0,
}


class FakeTime:
    """Replacement for the module `time` in the clocks."""

    def __init__(self) -> None:
        self.ms = 0.0

    def perf_counter(self) -> float:
        return self.ms / 1000

    def after(self, cost, function):
        """Return a version of the function that takes a known time."""

        def timed(*args, **kwargs):
            self.ms += COSTS[cost]
            return function(*args, **kwargs)

        return timed


@pytest.fixture
def time(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(clock, "time", fake)
    return fake


@pytest.fixture
def generator(time, monkeypatch):
    """Return a generator in which every part takes a known time."""
    for owner, name, cost in (
        (ScriptedDrafter, "start", "start"),
        (TreeBudget, "next_tree", "choose"),
        (ScriptedSession, "propose", "propose"),
        (TorchSession, "score", "score"),
        (TorchSession, "verify", "verify"),
        (ScriptedSession, "observe", "observe"),
        (recorder, "make_nodes", "record"),
        (TreeBudget, "update", "learn"),
    ):
        monkeypatch.setattr(owner, name, time.after(cost, getattr(owner, name)))
    generator = scripted_generator()
    generator.profile = DeviceProfile(((1, 50.0), (64, 51.0)), ((1, 0.1), (8, 0.2)))
    return generator


def parts(*names):
    return pytest.approx(sum(COSTS[name] for name in names))


@pytest.mark.parametrize("policy", ["fixed", "auto"])
def test_step_time_is_elapsed_time_and_draft_time_includes_all_drafting_work(generator, time, policy):
    tree = TreeConfig(width=1, depth=3, nodes=4, policy=policy)
    before = time.ms
    answer = generator.stream("Why?", SamplingParams(max_new_tokens=40), tree=tree)
    steps = [next(answer) for _ in range(4)]
    assert all(len(step.nodes) > 1 for step in steps)
    planned = ("choose", "learn") if policy == "auto" else ()
    assert steps[0].draft_ms == parts("start", "propose", "observe", *planned)
    for step in steps[1:]:
        assert step.draft_ms == parts("propose", "observe", *planned)
    for step in steps:
        assert step.verify_ms == parts("score")
        assert step.other_ms == parts("verify", "record")
    assert answer.trace.header.prefill_ms == 0
    assert sum(step.total_ms for step in steps) == pytest.approx(time.ms - before)


def test_draft_ahead_counts_only_the_time_that_its_step_waits(time, monkeypatch):
    """The device drafts for 10 ms while the host pauses for 4 or 30 ms; a pass of the target takes 20 ms."""

    class Event:
        """An event with the time at which the device reaches it."""

        device_ms = 0.0

        def __init__(self, enable_timing) -> None:
            pass

        def record(self, stream) -> None:
            Event.device_ms = self.ms = max(Event.device_ms, time.ms)

        def elapsed_time(self, after) -> float:
            return after.ms - self.ms

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    for away in (4.0, 30.0):
        Event.device_ms = time.ms
        step = CudaStepClock(torch.device("cuda", 0))
        with step.draft():
            Event.device_ms += 10
        step.pause()
        time.ms += away
        step.resume()
        with step.target_pass():
            Event.device_ms = max(Event.device_ms, time.ms) + 20
        time.ms = Event.device_ms + 1
        step.read_events()
        assert (step.draft_ms, step.verify_ms, step.other_ms) == pytest.approx((10, 20, 1))
        with step.draft():
            time.ms += 3
        assert (step.draft_ms, step.other_ms) == pytest.approx((13, 1)), "work after the copy is timed by the host"


def test_paused_time_is_not_counted(time):
    step = StepClock()
    time.ms += 2
    step.pause()
    time.ms += 50
    step.resume()
    time.ms += 3
    assert step.other_ms == pytest.approx(5)
