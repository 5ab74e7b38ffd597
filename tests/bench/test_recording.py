"""Recording is measured by making a trace's nodes once more: they must be the same ones."""

from jakiro.config import SamplingParams, TreeConfig
from jakiro.engine.recorder import _outcome_of, milliseconds_to_record, nodes_from
from tests.support import tiny_generator


def test_the_nodes_made_once_more_are_those_of_the_trace():
    generator = tiny_generator("summed")
    tree = TreeConfig(width=4, depth=4, nodes=12, context=True)
    trace = generator.run(
        "Tell me, tell me, tell me.", SamplingParams(temperature=0.8, seed=2, max_new_tokens=12), tree=tree
    )
    assert {node.proposer for step in trace.steps for node in step.nodes} >= {"root", "expert_0", "contrastive"}
    proposers = [proposer["id"] for proposer in trace.header.proposers]
    for step in trace.steps:
        assert nodes_from(_outcome_of(step, proposers), generator.token_text, proposers) == step.nodes
    assert milliseconds_to_record(trace, generator.token_text) > 0
