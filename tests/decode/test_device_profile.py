"""Profiles of pass times, measured here with a fake clock; buffers are returned even if measuring fails."""

import json
from unittest.mock import Mock

import pytest
import torch

from jakiro.backends.cuda_graphs.buffers import GraphBuffers
from jakiro.backends.torch_backend import TorchSession
from jakiro.config import SamplingParams, TreeConfig
from jakiro.decode import device_profile as costs
from jakiro.decode.device_profile import FAR_ROWS, LEVELS, NEAR_TOKENS, ROUNDS, ROWS, DeviceProfile, measure
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN
from jakiro.generator import JakiroGenerator
from tests.backends.static import static_generator
from tests.backends.test_step_clock import FakeTime
from tests.support import tiny_generator

CHAINS = next(method for method in METHODS.values() if method.aliases and not method.drafts and method is not PLAIN)


@pytest.fixture
def clock(monkeypatch):
    """Return a clock: r rows after n tokens take `cost(n, r)`, 10 + r + n / 100 ms, and drafts of d levels 2 + 3 d."""
    fake = FakeTime()
    fake.cost, fake.passes = lambda length, rows: 10.0 + rows + length / 100, []
    score, start = TorchSession.score, HeadDrafter.start

    def timed_score(self, tree):
        score(self, tree)
        length = self.cache.length - self.target.row_bucket(tree.num_nodes)
        fake.passes.append((length, tree.num_nodes))
        fake.ms += fake.cost(length, tree.num_nodes)

    def timed_start(self, *arguments):
        session = start(self, *arguments)
        propose = session.propose

        def timed(limits):
            fake.ms += 2.0 + 3.0 * limits.tree.depth
            proposal = propose(limits)
            assert int(proposal.tree.depths.max()) == limits.tree.depth, "the draft stopped before its last level"
            return proposal

        session.propose = timed
        return session

    monkeypatch.setattr(costs, "time", fake)
    monkeypatch.setattr(TorchSession, "score", timed_score)
    monkeypatch.setattr(HeadDrafter, "start", timed_start)
    return fake


def test_profile_has_times_by_rows_by_levels_and_per_thousand_tokens(clock):
    generator = tiny_generator("decoupled")
    generator.target.max_positions = 2048
    profile = measure(generator.backend, generator.drafter(DEFAULT), has_drafts=True)
    assert profile.verify_ms == tuple((rows, 10.0 + rows + NEAR_TOKENS / 100) for rows in ROWS)
    assert profile.draft_ms == tuple((levels, 2.0 + 3.0 * levels) for levels in LEVELS)
    # A pass of the target before each draft fills the CPU caches
    assert clock.passes.count((NEAR_TOKENS, 1)) == (1 + ROUNDS) * (1 + len(LEVELS))
    # Each thousand tokens adds 10 ms
    assert profile.further_ms == tuple((rows, pytest.approx(10.0, abs=0.2)) for rows in FAR_ROWS)
    assert profile.pass_ms(4, NEAR_TOKENS + 500) == pytest.approx(profile.pass_ms(4) + 5.0, abs=0.1)
    assert set(profile.key) == {"device", "threads"} and profile.key["threads"] == torch.get_num_threads()
    assert json.loads(json.dumps(profile.to_dict())) == profile.to_dict()


def test_sizes_alternate_and_disturbances_of_two_rounds_of_five_have_no_effect(clock):
    generator, cost = tiny_generator(), clock.cost
    quiet = measure(generator.backend, generator.drafter(PLAIN), has_drafts=False)
    near = [rows for length, rows in clock.passes if length == NEAR_TOKENS]
    assert near == [*ROWS] * (1 + ROUNDS), "every round must include all sizes"
    clock.passes.clear()
    disturbed = {*range(len(ROWS), 3 * len(ROWS))}
    clock.cost = lambda length, rows: cost(length, rows) * (5 if len(clock.passes) - 1 in disturbed else 1)
    assert measure(generator.backend, generator.drafter(PLAIN), has_drafts=False) == quiet
    # The first round is not counted, because first calls may take several times as long
    clock.passes.clear()
    clock.cost = lambda length, rows: cost(length, rows) * (5 if len(clock.passes) <= len(ROWS) else 1)
    assert measure(generator.backend, generator.drafter(PLAIN), has_drafts=False) == quiet


def test_method_is_measured_once_for_each_number_of_threads(monkeypatch):
    measured, generator = [], tiny_generator()
    generator = JakiroGenerator(generator._resources, measures=True)

    def measure_once(backend, drafter, drafts):
        measured.append(drafts)
        return DeviceProfile(((1, 10.0), (24, 12.0)), ((1, 1.0), (4, 3.0)) if drafts else ())

    monkeypatch.setattr("jakiro.generator.measure", measure_once)
    sampling, tree = SamplingParams(max_new_tokens=4), TreeConfig(policy="auto")
    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 1):
            torch.set_num_threads(number)
            for method in (DEFAULT, CHAINS):
                generator.run("Why?", sampling, method.name, tree)
    finally:
        torch.set_num_threads(threads)
    assert measured == [True, False, True, False]
    generator.run("Why?", sampling, DEFAULT.name, TreeConfig(nodes=4, depth=2))
    generator.run("Why?", sampling, PLAIN.name)
    assert len(measured) == 4, "trees of a fixed size need no profile"


def test_buffers_are_returned_if_measuring_fails(monkeypatch, without_compiled_functions):
    generator = static_generator()
    monkeypatch.setattr(GraphBuffers, "prefill", Mock(side_effect=RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        measure(generator.backend, generator.drafter(DEFAULT), True)
    assert len(generator.backend.pool._free) == 1
