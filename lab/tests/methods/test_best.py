"""The best source: what is free is merged or goes alone, and every node names its source."""

import math

from jakiro.config import SamplingParams, TreeConfig
from jakiro.decode.device_profile import DeviceProfile
from jakiro.drafters.registry import PLAIN
from lab import KNOWN
from lab.methods.best import BestDrafter
from lab.published.aded import TrigramDrafter
from lab.published.trigrams import TrigramTable
from tests.support import tiny_generator

QUESTION = "the cat sat on the mat; the cat sat on the mat; the cat sat"
SAMPLING = SamplingParams(max_new_tokens=48)
AUTO = TreeConfig(nodes=32, depth=6, policy="auto")


def generator_that_knows(text_ids, draft_ms):
    """One whose table was counted from the answer itself, and whose drafts cost so much."""
    generator = tiny_generator("decoupled", methods=KNOWN)
    generator.profile = DeviceProfile(((1, 10.0), (64, 12.0)), ((1, draft_ms), (8, 2 * draft_ms)))
    table = TrigramTable.counted([text_ids] * 3, generator.target.vocab_size, least_count=1)
    parts = [generator.drafter(KNOWN[name]) for name in ("jakiro", "prompt_lookup")]
    generator._drafters["best"] = BestDrafter(parts[0], TrigramDrafter(table), parts[1])
    return generator


def run(draft_ms, sampling=SAMPLING):
    plain = tiny_generator("decoupled").run(QUESTION, sampling, PLAIN.name)
    trace = generator_that_knows(plain.token_ids, draft_ms).run(QUESTION, sampling, "best", AUTO)
    assert trace.token_ids == plain.token_ids
    return trace


def test_free_candidates_go_alone_where_drafts_are_dear():
    trace = run(draft_ms=60.0)
    alone = [step for step in trace.steps if "seen together before" in step.plan.why and len(step.nodes) > 1]
    assert len(alone) > len(trace.steps) // 2
    for step in alone:
        assert {node.proposer for node in step.nodes[1:]} <= {"trigram", "trigram_live", "copied"}
        assert len(step.nodes) == step.plan.nodes
        assert all(math.isfinite(node.score) for node in step.nodes)
    assert trace.tau > 1.5


def test_they_join_the_head_s_tree_where_drafts_are_cheap_and_with_a_temperature_copies_alone():
    trace = run(0.01, SamplingParams(1.0, seed=5, max_new_tokens=48))
    drafted = [step for step in trace.steps if "seen together" not in step.plan.why]
    names = {node.proposer for step in drafted for node in step.nodes}
    assert names == {"root", "expert_0", "expert_1", "copied"}
