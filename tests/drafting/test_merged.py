"""Two methods as one: a chain goes on where the other drafter has nothing to say."""

import pytest

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting.base import Resources
from jakiro.drafting.heads import HeadDrafter
from jakiro.drafting.limited import LimitedDrafter
from jakiro.drafting.merged import MergedDrafter
from jakiro.engine.costs import DeviceProfile
from jakiro.generator import JakiroGenerator
from jakiro.methods import WITH_COPIES
from jakiro.methods.prompt_lookup import PromptLookupDrafter
from tests.support import TREE, tiny_head, tiny_target

REPEATING = "the cat sat on the mat; the cat sat on the mat; the cat sat on"
COSTS = DeviceProfile(verify_ms=((1, 10.0), (64, 12.0)), draft_ms=((1, 0.1), (4, 0.3)), width=8)


@pytest.mark.parametrize("tree", [TREE, TreeConfig(nodes=16, depth=4, policy="auto")], ids=["fixed", "automatic"])
@pytest.mark.parametrize("chains_only", [False, True])
def test_past_the_head_s_length_chains_are_still_copied(tree, chains_only, monkeypatch):
    target = tiny_target()
    monkeypatch.setattr(target, "chains_only", chains_only)
    drafter = MergedDrafter(LimitedDrafter(HeadDrafter(tiny_head(target)), 8), PromptLookupDrafter())
    generator = JakiroGenerator(Resources(target), {WITH_COPIES.name: drafter})
    generator.profile = COSTS
    sampling = SamplingParams(max_new_tokens=48)
    trace = generator.run(REPEATING, sampling, WITH_COPIES.name, tree)
    assert trace.token_ids == generator.run(REPEATING, sampling, "autoregressive").token_ids
    accepted = [step.nodes[node].proposer for step in trace.steps for node in step.accepted_path]
    assert accepted and set(accepted) == {"copied"}
    for step in trace.steps:
        assert len(step.nodes) <= tree.nodes
        words = (
            ("Copied from", "without a draft") if len(step.nodes) > 1 else ("after them, decoding is plain", "No draft")
        )
        assert any(each in step.plan.why for each in words), step.plan
