"""Heads of the lab load through `--methods-from`, with the networks of their kinds."""

import pytest

from jakiro import JakiroGenerator, SamplingParams
from jakiro.heads.checkpoint import save_head
from lab import KNOWN, METHODS
from tests.support import TREE, head_fields, save_target, tiny_head
from tests.training.tiny import byte_target


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Write a tiny target and an early exit for it."""
    target, head = (tmp_path_factory.mktemp(name) for name in ("target", "head"))
    save_target(target, byte_target(num_layers=2))
    loaded = JakiroGenerator.from_pretrained(str(target), "none", "cpu", "float32").target
    save_head(tiny_head(loaded, known=KNOWN, **head_fields(KNOWN["exit"])), head)
    return str(target), str(head)


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_head_of_an_outside_kind_loads_if_its_methods_are_registered(pair, temperature):
    generator = JakiroGenerator.from_pretrained(*pair, "cpu", "float32", methods=METHODS)
    names = {method.name for method in generator.methods}
    assert {"exit", "mcsd_exit", "skip"} <= names and not {"jakiro", "s2d"} & names
    sampling = SamplingParams(temperature, seed=1, max_new_tokens=8)
    plain = generator.run("hi", sampling, "autoregressive")
    for name, proposer in (("exit", "exit"), ("mcsd_exit", "sample_1")):
        drafted = generator.run("hi", sampling, name, TREE)
        assert drafted.token_ids == plain.token_ids and drafted.header.drafter["name"] == pair[1]
        assert any(node.proposer == proposer for step in drafted.steps for node in step.nodes)
