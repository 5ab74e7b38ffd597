"""Measured costs: every pass is timed, what was measured is kept whole, and a lane comes back whatever happens."""

import json

import pytest

from jakiro.engine import profile
from jakiro.engine.costs import DeviceProfile
from jakiro.engine.profile import (
    CONTEXT_TOKENS,
    FAR_LEVELS,
    FAR_NODES,
    PROFILED_LEVELS,
    PROFILED_NODES,
    load_or_measure,
    measure,
)
from tests.support import tiny_generator

KEPT = DeviceProfile(((1, 2.0), (8, 3.0)), ((1, 0.5),), 8, {"target": "tiny"})


@pytest.fixture
def counted(monkeypatch) -> list:
    """Measuring costs nothing and is counted."""
    calls = []

    def measured(target, drafter, key, lanes=None):
        calls.append(key)
        return KEPT

    monkeypatch.setattr(profile, "measure", measured)
    return calls


def test_every_size_and_depth_is_timed_and_more_work_never_takes_less():
    generator = tiny_generator()
    found = measure(generator.target, generator.drafter, {"device": "here"})
    assert [nodes for nodes, _ in found.verify_ms] == list(PROFILED_NODES)
    assert [levels for levels, _ in found.draft_ms] == list(range(1, PROFILED_LEVELS + 1))
    for points in (found.verify_ms, found.draft_ms):
        times = [milliseconds for _, milliseconds in points]
        assert times == sorted(times) and times[0] > 0


def test_what_further_text_adds_is_timed_where_the_model_reads_so_much(monkeypatch):
    short, long = tiny_generator(), tiny_generator()
    long.target.max_positions = 1024
    assert measure(short.target, short.drafter, {}).verify_slopes == ()
    found = measure(long.target, long.drafter, {})
    assert found.context == CONTEXT_TOKENS
    assert [nodes for nodes, _ in found.verify_slopes] == list(FAR_NODES)
    assert [levels for levels, _ in found.draft_slopes] == list(FAR_LEVELS)
    assert all(slope >= 0 for _, slope in (*found.verify_slopes, *found.draft_slopes))
    assert DeviceProfile.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    monkeypatch.setattr(profile, "MAX_READING_MS", 0)
    assert measure(long.target, long.drafter, {}).draft_slopes == ()


def test_what_was_measured_is_kept_in_one_move_and_read_again(tmp_path, counted):
    target = tiny_generator().target
    assert load_or_measure(target, None, {"sha256": "1" * 64}, tmp_path) == KEPT
    assert load_or_measure(target, None, {"sha256": "1" * 64}, tmp_path) == KEPT
    assert len(counted) == 1
    (kept,) = tmp_path.iterdir()
    assert DeviceProfile.from_dict(json.loads(kept.read_text())) == KEPT


@pytest.mark.parametrize("broken", ["", '{"verify_ms": [[1, 2.0]', '{"verify_ms": 1}', "[]"])
def test_a_broken_file_is_measured_anew(tmp_path, counted, broken):
    target = tiny_generator().target
    load_or_measure(target, None, None, tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text(broken)
    assert load_or_measure(target, None, None, tmp_path) == KEPT
    assert len(counted) == 2
    assert json.loads(kept.read_text()) == KEPT.to_dict()


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
        measure(generator.target, generator.drafter, {}, lanes)
    assert lanes.given_back == 1
