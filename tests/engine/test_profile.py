"""Measured costs: every pass is timed, what was measured is kept whole, and a slot comes back whatever happens."""

import json
import logging
from dataclasses import replace

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.drafting.base import TreeLimits
from jakiro.engine import measuring, profile
from jakiro.engine.costs import ROUNDS, DeviceProfile
from jakiro.engine.measuring import (
    CONTEXT_TOKENS,
    FAR_LEVELS,
    FAR_NODES,
    PROFILED_LEVELS,
    PROFILED_NODES,
    Measuring,
    measure_drafts,
    measure_passes,
)
from jakiro.engine.profile import Profiler
from jakiro.engine.runner import SlicedRunner
from jakiro.methods import DEFAULT, METHODS, PLAIN
from tests.support import TREE, tiny_generator

PASSES = DeviceProfile(((1, 2.0), (8, 3.0)), (), 8, {"target": "tiny"})
DRAFTS = DeviceProfile((), ((1, 0.5),), 6, {"target": "tiny"}, draft_slopes=((1, 0.1),))
CHAINS = next(method for method in METHODS.values() if method.aliases and not method.drafts and method is not PLAIN)


@pytest.fixture
def counted(monkeypatch, tmp_path) -> list:
    """Measuring costs nothing, takes three pieces, and is counted: (whether drafts, its rounds, its key)."""
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    pieces = []

    class Scripted:
        def __init__(self, target, drafter, drafts, slots, known):
            self.drafts, self.rounds = drafts, 0 if known is None else known.rounds

        @property
        def is_done(self):
            return self.rounds >= ROUNDS

        def advance(self, key):
            self.rounds = min(self.rounds + 2, ROUNDS)
            pieces.append((self.drafts, self.rounds, key))
            return replace(DRAFTS if self.drafts else PASSES, rounds=self.rounds)

    monkeypatch.setattr(profile, "Measuring", Scripted)
    return pieces


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "profiles"


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
    generator, log, milliseconds = tiny_generator(), [], iter([100.0, 90.0, 9.0, 5.0, 90.0, 3.0, 90.0, 40.0])
    monkeypatch.setattr(measuring, "_timed", lambda device, work: (log.append("timed"), work(), next(milliseconds))[1:])

    def timings(drafter):
        runner = SlicedRunner(generator.target, SamplingParams(), 60)
        score = runner.score
        monkeypatch.setattr(runner, "score", lambda tree: (log.append("pass"), score(tree)))
        made = measuring._Timings(generator.target, runner, drafter, 20, TreeLimits(TREE), {})
        made.read_on()
        log.clear()
        return made

    return timings, log, generator.drafter(DEFAULT)


def test_the_mean_of_a_pass_s_timings_is_kept(short):
    timings, log, _ = short
    passes = timings(None)
    for rounds in range(3):
        passes.take([1], rounds)
    # 5, 3, and a disturbed 40, which counts as no more than half as much again as the mean before it
    assert passes.times == {1: pytest.approx((5 + 3 + 1.5 * 4) / 3)}
    # One before each round does not count, and of the first two of a size the second one does
    assert log == ["timed", "pass"] * 7


def test_before_each_draft_a_pass_of_the_target_fills_the_processor_s_caches(short):
    timings, log, drafter = short
    timings(drafter).take([1, 2, 3], 0)
    assert log == ["pass", "timed"] * 6, "one before, and two of those below 30 ms"


@pytest.mark.parametrize("nodes_a_level", [3, None])
def test_drafts_are_timed_for_trees_as_answers_have_them(nodes_a_level, monkeypatch):
    generator = tiny_generator()
    drafter, drafted = generator.drafter(DEFAULT), []
    propose = measuring._Timings._propose

    def watched(timings, levels):
        own = timings.session.propose
        with monkeypatch.context() as patch:
            patch.setattr(timings.session, "propose", lambda limits: (drafted.append(limits.tree), own(limits))[1])
            propose(timings, levels)

    monkeypatch.setattr(measuring._Timings, "_propose", watched)
    measure_drafts(generator.target, drafter, {}, nodes_a_level=nodes_a_level)
    assert {tree.depth for tree in drafted} == set(range(1, 9))
    assert {(tree.depth, tree.nodes) for tree in drafted if tree.depth < 4} == {
        (depth, 64 if nodes_a_level is None else 1 + 3 * depth) for depth in (1, 2, 3)
    }


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
    monkeypatch.setattr(measuring, "MAX_PREFILL_MS", 0)
    assert measure_drafts(long.target, long.drafter(DEFAULT), {}).draft_slopes == ()


def test_a_measurement_in_pieces_ends_as_one_at_once_does(monkeypatch):
    """Each piece is a round after a short or a long text; a long text is read once, part by part."""
    generator = tiny_generator()
    generator.target.max_positions = 1024
    milliseconds = iter(range(100_000, 0, -1))
    monkeypatch.setattr(measuring, "_timed", lambda device, work: (work(), float(next(milliseconds))))
    monkeypatch.setattr(measuring, "MAX_PREFILL_MS", 1e9)
    read, prefill = [], generator.target.prefill
    monkeypatch.setattr(generator.target, "prefill", lambda ids, cache: (read.append(len(ids)), prefill(ids, cache))[1])
    pieces = Measuring(generator.target, generator.drafter(DEFAULT), False)
    rounds, counts = [], []
    while not pieces.is_done:
        found = pieces.advance({"a": 1})
        rounds.append(found.rounds)
        counts.append((len(found.verify_ms), len(found.verify_slopes)))
    text = generator.target.max_positions - pieces._rows
    parts = [CONTEXT_TOKENS] * (text // CONTEXT_TOKENS) + [text % CONTEXT_TOKENS]
    assert read == [CONTEXT_TOKENS, *parts] and len(parts) > 2
    assert rounds == [0] + [0] * len(parts) + [1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert {near for near, _ in counts} == {len(PROFILED_NODES)}
    assert [far for _, far in counts] == [0] + [0] * len(parts) + [len(FAR_NODES)] * 9
    assert found.key == {"a": 1}


def test_a_measurement_goes_on_where_another_process_ended(monkeypatch):
    generator = tiny_generator()
    monkeypatch.setattr(measuring, "_timed", lambda device, work: (work(), 7.0))
    known = DeviceProfile(tuple((nodes, 5.0 if nodes == 1 else 9.0) for nodes in PROFILED_NODES), (), 8, rounds=3)
    pieces = Measuring(generator.target, generator.drafter(DEFAULT), False, known=known)
    assert pieces.advance({}).rounds == 4
    found = pieces.advance({})
    assert pieces.is_done and found.rounds == ROUNDS
    # Two rounds of 7 ms after three of 5 and of 9
    means = {nodes: 5.8 if nodes == 1 else 8.2 for nodes in PROFILED_NODES}
    assert dict(found.verify_ms) == pytest.approx(means)


def test_costs_are_there_after_a_first_piece_and_get_better_until_all_rounds_are_done(folder, counted):
    generator = tiny_generator()
    profiler, drafter = Profiler(generator.target, folder), generator.drafter(DEFAULT)
    first = profiler.profile(DEFAULT, drafter)
    assert [piece[:2] for piece in counted] == [(False, 2), (True, 2)]
    assert (first.verify_ms, first.draft_ms, first.draft_slopes, first.width, first.rounds) == (
        PASSES.verify_ms,
        DRAFTS.draft_ms,
        DRAFTS.draft_slopes,
        DRAFTS.width,
        2,
    )
    while profiler.go_on():
        pass
    assert [piece[:2] for piece in counted[2:]] == [(False, 4), (True, 4), (False, 5), (True, 5)]
    assert profiler.profile(DEFAULT, drafter) == replace(first, rounds=ROUNDS)
    kept = [DeviceProfile.from_dict(json.loads(path.read_text())) for path in folder.iterdir()]
    assert sorted(kept, key=lambda each: each.draft_ms) == [PASSES, DRAFTS]
    again = Profiler(generator.target, folder)
    assert again.profile(DEFAULT, drafter).rounds == ROUNDS and not again.go_on()
    assert len(counted) == 6


def test_each_number_of_threads_has_costs_of_its_own_measured_with_so_many(folder, counted, monkeypatch):
    before = torch.get_num_threads()
    try:
        generator = tiny_generator()
        used, scripted = [], profile.Measuring.advance

        def advance(measuring, key):
            used.append((key["threads"], torch.get_num_threads()))
            return scripted(measuring, key)

        monkeypatch.setattr(profile.Measuring, "advance", advance)
        profiler, drafter = Profiler(generator.target, folder), generator.drafter(DEFAULT)
        for threads in (3, 1, 3, 1):
            torch.set_num_threads(threads)
            assert profiler.profile(DEFAULT, drafter).key["threads"] == threads
        torch.set_num_threads(3)
        while profiler.go_on():
            pass
    finally:
        torch.set_num_threads(before)
    assert set(used) == {(3, 3), (1, 1)} and used[:4] == [(3, 3), (3, 3), (1, 1), (1, 1)]


@pytest.mark.anywhere
def test_what_is_measured_in_part_is_used_by_another_process_which_goes_on(folder, counted):
    generator = tiny_generator()
    Profiler(generator.target, folder).profile(DEFAULT, generator.drafter(DEFAULT))
    other = Profiler(generator.target, folder)
    assert other.profile(DEFAULT, generator.drafter(DEFAULT)).rounds == 2 and len(counted) == 2
    assert other.go_on() and counted[-1][:2] == (False, 4)


def test_what_another_process_measured_meanwhile_is_not_measured_again(folder, counted):
    generator = tiny_generator()
    one, other = (Profiler(generator.target, folder) for _ in range(2))
    for profiler in (one, other):
        profiler.profile(DEFAULT, generator.drafter(DEFAULT))
    while one.go_on():
        pass
    before = len(counted)
    while other.go_on():
        pass
    assert len(counted) == before and other.profile(DEFAULT, generator.drafter(DEFAULT)).rounds == ROUNDS


def test_a_target_s_passes_are_measured_once_for_all_methods(folder, counted):
    generator = tiny_generator()
    profiler = Profiler(generator.target, folder)
    profiler.profile(DEFAULT, generator.drafter(DEFAULT))
    chains = profiler.profile(CHAINS, generator.drafter(CHAINS))
    assert len(counted) == 2, "the passes and one method's drafts"
    assert chains.verify_ms == PASSES.verify_ms and chains.draft(3) == 0.0
    assert {"method", "head"} <= set(counted[1][2]) - set(counted[0][2])


def test_other_compiled_functions_are_measured_anew(folder, counted, monkeypatch):
    generator = tiny_generator()
    monkeypatch.setattr(type(generator.target), "compiled", True)
    for build, pieces in (("one", 1), ("other", 2), ("one", 2)):
        monkeypatch.setattr(profile, "build_name", lambda build=build: build)
        Profiler(generator.target, folder).profile(CHAINS, generator.drafter(CHAINS))
        assert len(counted) == pieces


def test_a_file_from_before_rounds_were_counted_is_a_whole_measurement():
    values = PASSES.to_dict()
    del values["rounds"]
    assert DeviceProfile.from_dict(values).rounds == ROUNDS


@pytest.mark.parametrize("broken", ["", '{"verify_ms": [[1, 2.0]', '{"verify_ms": 1}', "[]", b"\xff\x00"])
def test_a_broken_file_is_measured_anew_with_a_sentence(folder, counted, broken, caplog):
    generator = tiny_generator()
    Profiler(generator.target, folder).profile(CHAINS, generator.drafter(CHAINS))
    (kept,) = folder.iterdir()
    kept.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    with caplog.at_level(logging.WARNING):
        found = Profiler(generator.target, folder).profile(CHAINS, generator.drafter(CHAINS))
    assert found.verify_ms == PASSES.verify_ms
    assert caplog.messages == [f"Measured costs in {kept} are damaged or incomplete; measuring again."]
    assert len(counted) == 2
    assert json.loads(kept.read_text())["verify_ms"] == PASSES.to_dict()["verify_ms"]


def test_a_slot_comes_back_although_measuring_failed(monkeypatch):
    class OneSlot:
        tree_sizes = (8,)
        given_back = 0

        def borrow(self, *_):
            return object(), self.give_back

        def give_back(self):
            self.given_back += 1

    def fails(*_):
        raise RuntimeError("out of memory")

    slots, generator = OneSlot(), tiny_generator()
    monkeypatch.setattr(measuring, "_Timings", fails)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure_drafts(generator.target, generator.drafter(DEFAULT), {}, slots)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure_passes(generator.target, generator.drafter(DEFAULT), {}, slots)
    assert slots.given_back == 2


@pytest.mark.parametrize("place", ["where nothing is a folder", "on a disk that is full"])
def test_where_nothing_can_be_kept_costs_are_measured_and_remembered(place, folder, counted, monkeypatch, caplog):
    if place == "on a disk that is full":

        def full(path, data):
            raise OSError(28, "No space left on device", str(path))

        monkeypatch.setattr(profile, "write_atomically", full)
    else:
        folder.write_text("a file where the cache should be")
        monkeypatch.setenv("JAKIRO_CACHE", str(folder))
    generator = tiny_generator()
    profiler = Profiler(generator.target, folder)
    for _ in range(3):
        assert profiler.profile(CHAINS, generator.drafter(CHAINS)).verify_ms == PASSES.verify_ms
    assert len(counted) == 1
    while profiler.go_on():
        pass
    assert counted[-1][1] == ROUNDS and profiler.profile(CHAINS, generator.drafter(CHAINS)).rounds == ROUNDS
    assert any("could not be saved" in message for message in caplog.messages)


def test_costs_that_nobody_may_read_are_measured_anew(folder, counted, caplog):
    generator = tiny_generator()
    Profiler(generator.target, folder).profile(CHAINS, generator.drafter(CHAINS))
    (kept,) = folder.iterdir()
    kept.unlink()
    kept.mkdir()
    assert Profiler(generator.target, folder).profile(CHAINS, generator.drafter(CHAINS)).verify_ms == PASSES.verify_ms
    assert "could not be read" in caplog.messages[0] and len(counted) == 2
