"""S2D's exits side by side: every lane writes plain decoding's text, and the table says what its steps did."""

from functools import partial

from jakiro.config import TreeConfig
from jakiro.drafters.base import Resources
from jakiro.drafters.registry import PLAIN
from jakiro.prompts import Question
from lab import KNOWN
from lab.arena.exits import answered, rules_for, table
from lab.methods.s2d import METHOD, first_sure, proposers_of
from tests.support import head_fields, tiny_head, tiny_target

QUESTIONS = [Question(str(number), "math", (text,)) for number, text in enumerate(("Why?", "the cat sat"))]
TREE = TreeConfig(width=3, depth=3, nodes=8)


def tiny() -> tuple[Resources, list[str]]:
    """A tiny pair, and its exits' names."""
    target, fields = tiny_target(), head_fields(METHOD)
    names = [proposer.id for proposer in proposers_of(fields["exit_layers"])]
    return Resources(target, tiny_head(target, known=KNOWN, **fields), {"name": "tiny"}), names


def test_every_lane_leaves_where_its_rule_says():
    resources, names = tiny()
    rules = rules_for(names, (0.0, 1.1))
    lanes = answered(resources, QUESTIONS, rules, TREE)
    steps = {name: lane.steps for name, lane in lanes.items()}
    assert list(steps) == [PLAIN.name, *(f"always {name}" for name in names), "θ = 0", "θ = 1.1"]
    texts = {lane: [token for step in own for token in step.committed_ids] for lane, own in steps.items()}
    assert all(text == texts[PLAIN.name] for text in texts.values())
    wanted = dict(zip(rules, [*names, names[0], names[-1]], strict=True))
    for lane, name in wanted.items():
        assert {node.proposer for step in steps[lane] for node in step.nodes[1:]} == {name}
    assert {max(node.depth for node in step.nodes) for step in steps["θ = 1.1"]} == {1}, "none was sure"


def test_the_table_has_shares_of_steps_and_speeds_over_plain():
    resources, names = tiny()
    lanes = answered(resources, QUESTIONS, {"early": lambda _: 0, "never": partial(first_sure, threshold=2)}, TREE)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(lanes, names).splitlines()]
    rows = {row[0]: dict(zip(lines[0], row, strict=True)) for row in lines[2:]}
    assert rows[PLAIN.name]["τ"] == "1.00" and rows[PLAIN.name]["speed"] == "1.00×"
    assert rows["early"][names[0]] == "100%" and rows["early"]["none sure"] == "0%"
    assert rows["never"]["none sure"] == "100%" and rows["never"][names[-1]] == "0%"
