"""Answers under a grammar, with any drafter: complete ones are valid, truncated ones are reported as such."""

import json
import random
import re
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from jakiro.cli.main import summary_line
from jakiro.config import Grammar, SamplingParams, TreeConfig
from jakiro.core.grammar import GrammarProcessor
from jakiro.core.logits_processors import allows
from jakiro.drafters.registry import METHODS, PLAIN
from tests.support import heads_of, tiny_generator

POINT = {"type": "array", "prefixItems": [{"type": "number"}] * 2, "minItems": 2, "maxItems": 2, "items": False}
SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}}, "required": ["name"]},
    {"enum": ["red", "green", "blue", 7, None]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "integer", "minimum": 10, "maximum": 99},
    {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-c]{1,3}$"}]},
    {"type": "object", "properties": {"point": {"$ref": "#/$defs/point"}}, "required": ["point"],
     "additionalProperties": False, "$defs": {"point": POINT}},
    {"const": {"ok": True}},
]  # fmt: skip
REGEXES = ["[a-z]{2,9}( [a-z]+){0,2}[.!]", "([0-9]{1,3}\\.){3}[0-9]{1,3}", "yes|no|maybe so", "([A-C][1-3]-)*X"]
FORMS = [Grammar("json_schema", schema) for schema in SCHEMAS] + [Grammar("regex", regex) for regex in REGEXES]
CASES = [(method.name, head) for method in METHODS.values() for head in heads_of(method)]
TREE = TreeConfig(width=4, depth=4, nodes=12)


@pytest.fixture(scope="module")
def generators():
    return {head: tiny_generator(head) for head in ("summed", "decoupled", "eagle3", "dflash")}


def holds(text: str, form: Grammar) -> bool:
    if form.kind == "regex":
        return re.fullmatch(form.source, text) is not None
    jsonschema.validate(json.loads(text), json.loads(form.source))
    return True


def test_answers_match_their_grammar_and_truncated_ones_are_reported(generators):
    dice, finished, drafted = random.Random(0), 0, 0
    for number in range(120):
        method, head = CASES[number % len(CASES)]
        form, generator = FORMS[(number // len(CASES) + number) % len(FORMS)], generators[head]
        sampling = SamplingParams(
            dice.choice([0, 0.3, 0.7, 1.0, 1.5]),
            dice.choice([1, 0.9]),
            seed=number,
            max_new_tokens=dice.choice([1, 2, 5, 16, 48]),
            repetition_penalty=dice.choice([1, 1.2]),
            no_repeat_ngram_size=dice.choice([0, 0, 2]),
            suppress_tokens=dice.choice([(), tuple(range(20, 40))]),
            grammar=form,
        )
        trace = generator.run(f"Tell me of {number % 9}.", sampling, method, TREE)
        processor = GrammarProcessor(form, generator.token_text, generator.target.vocab_size, generator.target.stop_ids)
        for token_id in trace.token_ids:
            row = np.full((1, 9), 0xFFFFFFFF, dtype=np.uint32)
            processor.forbid([-1], [-1], row)
            assert allows(row[0], token_id), (number, trace.text)
            processor.advance([token_id])
        assert trace.end_reason in ("eos", "length")
        cut = trace.end_reason == "length"
        assert cut or holds(trace.text, form)
        assert ("cut before its form was complete" in summary_line(trace)) is cut
        finished += not cut
        drafted += any(len(step.nodes) > 1 for step in trace.steps)
    assert finished > 30 and drafted > 40


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.source[:24])
def test_drafted_answers_equal_plain_decoding_and_mark_forbidden_nodes(form, generators):
    forbidden = set()
    for temperature in (0, 1.5):
        sampling = SamplingParams(temperature, seed=4, max_new_tokens=20, grammar=form)
        text = generators["summed"].run("Go on.", sampling, PLAIN.name).token_ids
        trace = generators["summed"].run("Go on.", sampling, tree=TREE)
        assert trace.token_ids == text
        for step in trace.steps:
            forbidden_nodes = [node for node in step.nodes if node.forbidden_by]
            assert all(node.target_prob == 0 for node in forbidden_nodes)
            assert not {step.nodes[index].forbidden_by for index in step.accepted_path} - {None}
            forbidden |= {node.forbidden_by for node in forbidden_nodes}
    assert forbidden == {"grammar"}


@pytest.mark.parametrize(("method", "head"), [("jakiro", "summed"), ("jakiro", "decoupled"), ("eagle3", "eagle3")])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_heads_draft_no_forbidden_token_after_the_root(method, head, temperature, generators):
    single = {"grammar": Grammar("regex", "[a-z]{40}")}, {"suppress_tokens": tuple(range(0, 240, 2))}
    for rule in (*single, single[0] | single[1]):
        for tree in (TREE, replace(TREE, shared_noise=False)):
            sampling = SamplingParams(temperature, seed=2, max_new_tokens=16, **rule)
            steps = generators[head].run("Go on.", sampling, method, tree).steps
            after_root = [node for step in steps for node in step.nodes if node.depth == 1]
            assert len(after_root) >= len(steps)
            assert {node.forbidden_by for node in after_root} == {None}
