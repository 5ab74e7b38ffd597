"""Measured costs: every pass is timed, what was measured is kept whole, and a lane comes back whatever happens."""

import json

import pytest

from jakiro.config import SamplingParams
from jakiro.drafting.base import TreeLimits
from jakiro.engine import profile
from jakiro.engine.costs import DeviceProfile
from jakiro.engine.profile import (
    CONTEXT_TOKENS,
    FAR_LEVELS,
    FAR_NODES,
    PROFILED_LEVELS,
    PROFILED_NODES,
    Profiler,
    measure_drafts,
    measure_passes,
)
from jakiro.engine.runner import SlicedRunner
from jakiro.methods import DEFAULT, METHODS, PLAIN
from tests.support import TREE, tiny_generator

PASSES = DeviceProfile(((1, 2.0), (8, 3.0)), (), 8, {"target": "tiny"})
DRAFTS = DeviceProfile((), ((1, 0.5),), 6, {"target": "tiny"}, draft_slopes=((1, 0.1),))
CHAINS = next(method for method in METHODS.values() if method.aliases and not method.drafts and method is not PLAIN)


@pytest.fixture
def counted(monkeypatch) -> list:
    """Measuring costs nothing and is counted."""
    calls = []

    def passes(target, drafter, key, lanes=None):
        calls.append(key)
        return PASSES

    def drafts(target, drafter, key, lanes=None):
        calls.append(key)
        return DRAFTS

    monkeypatch.setattr(profile, "measure_passes", passes)
    monkeypatch.setattr(profile, "measure_drafts", drafts)
    return calls


def test_every_size_and_depth_is_timed_and_more_work_never_takes_less():
    generator = tiny_generator()
    passes = measure_passes(generator.target, generator.drafter(DEFAULT), {"device": "here"})
    drafts = measure_drafts(generator.target, generator.drafter(DEFAULT), {"device": "here"})
    assert [nodes for nodes, _ in passes.verify_ms] == list(PROFILED_NODES)
    assert [levels for levels, _ in drafts.draft_ms] == list(range(1, PROFILED_LEVELS + 1))
    for points in (passes.verify_ms, drafts.draft_ms):
        times = [milliseconds for _, milliseconds in points]
        assert times == sorted(times) and times[0] > 0


@pytest.fixture
def short(monkeypatch):
    """Timings after a short text, with and without a drafter, and a log of what was done for them."""
    generator, log, milliseconds = tiny_generator(), [], iter([100.0, 5.0, 3.0, 4.0])
    monkeypatch.setattr(profile, "_timed", lambda device, work: (log.append("timed"), work(), next(milliseconds))[1:])

    def timings(drafter):
        runner = SlicedRunner(generator.target, SamplingParams(), 60)
        score = runner.score
        monkeypatch.setattr(runner, "score", lambda tree: (log.append("pass"), score(tree)))
        made = profile._Timings(generator.target, runner, drafter, 20, TreeLimits(TREE))
        log.clear()
        return made

    return timings, log, generator.drafter(DEFAULT)


def test_the_least_of_a_pass_s_timings_is_kept(short):
    timings, log, _ = short
    passes = timings(None)
    for _ in range(3):
        passes.take([1])
    assert passes.times == {1: 3.0}
    assert log == ["timed", "pass"] * 3


def test_before_each_draft_a_pass_of_the_target_fills_the_processor_s_caches(short):
    timings, log, drafter = short
    timings(drafter).take([1, 2, 3])
    assert log == ["pass", "timed"] * 3


def test_what_further_text_adds_is_timed_where_the_model_reads_so_much(monkeypatch):
    short, long = tiny_generator(), tiny_generator()
    long.target.max_positions = 1024
    assert measure_passes(short.target, short.drafter(DEFAULT), {}).verify_slopes == ()
    passes, drafts = (each(long.target, long.drafter(DEFAULT), {}) for each in (measure_passes, measure_drafts))
    assert passes.context == drafts.context == CONTEXT_TOKENS
    assert [nodes for nodes, _ in passes.verify_slopes] == list(FAR_NODES)
    assert [levels for levels, _ in drafts.draft_slopes] == list(FAR_LEVELS)
    assert all(slope >= 0 for _, slope in (*passes.verify_slopes, *drafts.draft_slopes))
    for found in (passes, drafts):
        assert DeviceProfile.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    monkeypatch.setattr(profile, "MAX_PREFILL_MS", 0)
    assert measure_drafts(long.target, long.drafter(DEFAULT), {}).draft_slopes == ()


def test_what_was_measured_is_kept_in_one_move_and_read_again(tmp_path, counted):
    generator = tiny_generator()
    profiler, drafter = Profiler(generator.target, tmp_path), generator.drafter(DEFAULT)
    first = profiler.profile(DEFAULT, drafter)
    assert (first.verify_ms, first.draft_ms, first.draft_slopes, first.width) == (
        PASSES.verify_ms,
        DRAFTS.draft_ms,
        DRAFTS.draft_slopes,
        DRAFTS.width,
    )
    assert profiler.profile(DEFAULT, drafter) == first
    assert len(counted) == 2
    kept = [DeviceProfile.from_dict(json.loads(path.read_text())) for path in tmp_path.iterdir()]
    assert sorted(kept, key=lambda each: each.draft_ms) == [PASSES, DRAFTS]


def test_a_target_s_passes_are_measured_once_for_all_methods(tmp_path, counted):
    generator = tiny_generator()
    profiler = Profiler(generator.target, tmp_path)
    profiler.profile(DEFAULT, generator.drafter(DEFAULT))
    chains = profiler.profile(CHAINS, generator.drafter(CHAINS))
    assert len(counted) == 2, "the passes and one method's drafts"
    assert chains.verify_ms == PASSES.verify_ms and chains.draft(3) == 0.0
    assert {"method", "head"} <= set(counted[1]) - set(counted[0])


@pytest.mark.parametrize("broken", ["", '{"verify_ms": [[1, 2.0]', '{"verify_ms": 1}', "[]"])
def test_a_broken_file_is_measured_anew(tmp_path, counted, broken):
    generator = tiny_generator()
    profiler = Profiler(generator.target, tmp_path)
    profiler.profile(CHAINS, generator.drafter(CHAINS))
    (kept,) = tmp_path.iterdir()
    kept.write_text(broken)
    assert profiler.profile(CHAINS, generator.drafter(CHAINS)) == PASSES
    assert len(counted) == 2
    assert json.loads(kept.read_text()) == PASSES.to_dict()


def test_a_lane_comes_back_although_measuring_failed(monkeypatch):
    class OneLane:
        tree_sizes = (8,)
        given_back = 0

        def borrow(self, *_):
            return object(), self.give_back

        def give_back(self):
            self.given_back += 1

    def fails(*_):
        raise RuntimeError("out of memory")

    lanes, generator = OneLane(), tiny_generator()
    monkeypatch.setattr(profile, "_Timings", fails)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure_drafts(generator.target, generator.drafter(DEFAULT), {}, lanes)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure_passes(generator.target, generator.drafter(DEFAULT), {}, lanes)
    assert lanes.given_back == 2
