"""What a stream tells its budget and its drafter about the size of the next tree."""

import pytest

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting.candidates import MAX_CHAIN
from jakiro.engine.budget import TreeBudget
from jakiro.engine.costs import DeviceProfile
from tests.support import scripted_generator


@pytest.mark.parametrize("nodes", [4, 1 + MAX_CHAIN, 64])
def test_each_step_is_planned_for_the_text_before_it_and_copies_alone_are_a_chain(monkeypatch, nodes):
    generator, contexts, plans, free = scripted_generator(), [], [], []
    generator.profile = DeviceProfile(((1, 40.0), (64, 40.1)), ((1, 0.1), (8, 0.2)))
    choose = TreeBudget.choose

    def chosen(budget, context):
        contexts.append(context)
        plans.append(choose(budget, context))
        return plans[-1]

    monkeypatch.setattr(TreeBudget, "choose", chosen)
    tree = TreeConfig(nodes=nodes, depth=3, policy="auto")
    stream = generator.stream("Why is it so?", SamplingParams(max_new_tokens=12), tree=tree)
    stream.may_draft_ahead = False
    propose = stream._session.propose
    stream._session.propose = lambda limits: (free.append((limits.free, plans[-1])), propose(limits))[1]
    prompt, before = stream.trace.header.num_prompt_tokens, [1]
    for step in stream:
        before.append(before[-1] + len(step.committed_ids))
    assert len(contexts) > 1 and contexts == [prompt + tokens - 1 for tokens in before[: len(contexts)]]
    assert free and {each.nodes for each, _ in free} == {min(nodes, 1 + MAX_CHAIN)}
    assert all(each.drafted == plan.expected_tokens - 1 for each, plan in free), "the target's own token is no draft's"
