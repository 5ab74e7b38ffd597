"""The clock that every speedup rests on: own time is wall time, and each part holds what belongs to it."""

import time

import pytest

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting.base import Drafter, DraftSession, Proposal, Proposer
from jakiro.drafting.candidates import MAX_CHAIN
from jakiro.engine.costs import DeviceProfile
from jakiro.methods import DEFAULT
from tests.support import tiny_generator, tree_of

PROPOSE_MS, OBSERVE_MS, SCORE_MS = 12.0, 8.0, 60.0


class SlowDrafter(Drafter):
    """Takes a known time to propose a chain, and another to observe."""

    proposers = (Proposer("slow", "Slow", "Takes its time."),)

    def start(self, prompt, sampling, noise):
        return SlowSession(prompt.token_ids[-1])


class SlowSession(DraftSession):
    def __init__(self, root):
        self.root = root

    def propose(self, limits):
        time.sleep(PROPOSE_MS / 1000)
        return Proposal(tree_of([self.root, *range(1, limits.tree.depth + 1)], range(-1, limits.tree.depth)))

    def observe(self, kept):
        time.sleep(OBSERVE_MS / 1000)
        self.root = kept.token_ids[-1]

    def rewind(self, length):
        pass


@pytest.fixture
def slow(monkeypatch):
    """A generator whose drafter and target take known times."""
    generator = tiny_generator()
    generator._drafters[DEFAULT.name] = SlowDrafter()
    score = generator.target.score

    def slow_score(tree, cache):
        time.sleep(SCORE_MS / 1000)
        return score(tree, cache)

    monkeypatch.setattr(generator.target, "score", slow_score)
    return generator


@pytest.mark.parametrize("policy", ["fixed", "auto"])
def test_own_time_is_wall_time_and_its_parts_are_where_they_belong(slow, policy):
    slow.profile = DeviceProfile(((1, 50.0), (64, 51.0)), ((1, 0.1), (8, 0.2)), width=8)
    tree = TreeConfig(width=1, depth=min(3, MAX_CHAIN), nodes=4, policy=policy)
    stream = slow.stream("Why?", SamplingParams(max_new_tokens=40), tree=tree)
    start = time.perf_counter()
    steps = [next(stream) for _ in range(14)]
    wall = time.perf_counter() - start
    own = sum(step.total_ms for step in steps) / 1000
    assert 0.98 * wall <= own <= wall
    drafted = [step for step in steps if len(step.nodes) > 1]
    assert len(drafted) > 8
    for step in drafted:
        # Sleeping takes at least as long as asked for; what else a part holds is a few milliseconds of a tiny model
        assert step.draft_ms >= PROPOSE_MS + OBSERVE_MS
        assert step.verify_ms >= SCORE_MS
    mean = {name: sum(getattr(step, name) for step in drafted) / len(drafted) for name in ("draft_ms", "verify_ms")}
    assert mean["draft_ms"] < PROPOSE_MS + OBSERVE_MS + SCORE_MS
    assert all(step.other_ms < SCORE_MS or step.other_ms < step.verify_ms for step in drafted)
