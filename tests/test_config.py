"""Validation of settings: each message contains the invalid value."""

import ast
import json
import math
from dataclasses import fields
from pathlib import Path

import pytest

import jakiro
from jakiro.config import Grammar, SamplingParams, TreeConfig

OUT_OF_RANGE = {
    "width": ("Tree width must be 1 to 64", (0, 65, 2.0, True)),
    "depth": ("Tree depth must be 0 to 16", (-1, 17, 2.0, True)),
    "nodes": ("Tree nodes must be 1 to 256", (0, 257, 2.0, True)),
    "policy": ("Tree policy must be one of", ("clever",)),
    "temperature": ("Temperature must be between 0 and 2", (-0.1, 2.5, math.nan, math.inf, True, "1", None)),
    "top_p": ("Top-p must be above 0 and at most 1", (0, 1.01, math.nan, True, "1")),
    "top_k": ("Top-k must be a whole number, 0 or more", (-1, 1.5, True, "5", None)),
    "seed": ("Seed must be a whole number from 0 to", (-1, 2**63, 1.0, True, None)),
    "max_new_tokens": ("Length must be a whole number of tokens", (0, 1.5, True, None, "6")),
    "min_p": ("Min-p must be between 0 and 1", (-0.1, 1.1, math.nan, True, None)),
    "repetition_penalty": ("Repetition penalty must be 0.1 to 10, 1 for none", (0.09, 11, math.inf, True, None)),
    "presence_penalty": ("Presence penalty must be -2 to 2, 0 for none", (-2.1, math.nan, True, None)),
    "frequency_penalty": ("Frequency penalty must be -2 to 2, 0 for none", (2.1, "1")),
    "no_repeat_ngram_size": ("N-gram size must be a whole number", (-1, 1.5, True, None)),
    "logit_bias": (
        "Logit bias must give at most 1024 token ids a number from -100 to 100 each",
        (7, "7", None, [7], [(7,)], [(7, 101)], [(-1, 1)], [(1.5, 1)], [(7, "1")], [(7, 1), (7, 2)]),
    ),
    "suppress_tokens": ("Suppressed tokens must be at most 1024 ids, 0 or more", (7, "7", None, [-1], [1.5], [True])),
    "grammar": ("A grammar must be a Grammar or None", ("json", {"kind": "json"})),
    "logprobs": ("Logprobs must be a whole number from 0 to 20", (-1, 21, True, 1.5, "5")),
}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        *((name, value, sentence) for name, (sentence, values) in OUT_OF_RANGE.items() for value in values),
        *(("temperature", value, "Temperature must be 0, which is greedy, or at least") for value in (9e-5, 1e-38)),
    ],
)
def test_setting_out_of_range_is_refused_with_its_value(name, value, sentence):
    with pytest.raises(ValueError) as caught:
        (TreeConfig if sentence.startswith("Tree") else SamplingParams)(**{name: value})
    message = str(caught.value)
    value_text = "nothing" if value is None else repr(value) if isinstance(value, str) else str(value)
    assert message.startswith(sentence) and message.endswith(f"got {value_text}.") and "\n" not in message


def test_limits_of_every_range_are_allowed():
    SamplingParams(temperature=0, top_p=1, top_k=0, seed=0, max_new_tokens=1)
    SamplingParams(temperature=1e-4, top_p=1e-9)
    SamplingParams(temperature=2, top_p=1e-9, top_k=10**6, seed=2**63 - 1, max_new_tokens=10**6)
    SamplingParams(min_p=1, repetition_penalty=0.1, presence_penalty=-2, frequency_penalty=2, no_repeat_ngram_size=99)
    SamplingParams(min_p=0, repetition_penalty=10, logit_bias={0: -100, 5: 100}, suppress_tokens=list(range(1024)))
    TreeConfig(width=1, depth=0, nodes=1)
    TreeConfig(width=64, depth=16, nodes=256, policy="auto")


@pytest.mark.parametrize(
    ("kind", "source", "sentence"),
    [
        ("xml", "", "A grammar is one of json_schema, json, regex, choice, lark; got 'xml'."),
        ("json", "{}", "A grammar of kind json takes nothing more; got '{}'."),
        ("regex", " ", "A grammar of kind regex takes its text; got ' '."),
        ("lark", ("a",), "A grammar of kind lark takes its text; got ('a',)."),
        ("json_schema", None, "A grammar of kind json_schema takes its text; got nothing."),
        ("choice", "yes", "A choice takes 1 to 256 texts; got 'yes'."),
        ("choice", (), "A choice takes 1 to 256 texts; got ()."),
        ("choice", ("a", ""), "A choice takes 1 to 256 texts; got ('a', '')."),
        ("regex", "a" * 100_001, "A grammar has at most 100,000 characters; yours has 100,001."),
    ],
)
def test_invalid_grammar_is_refused_in_one_sentence(kind, source, sentence):
    with pytest.raises(ValueError) as caught:
        Grammar(kind, source)
    assert str(caught.value) == sentence


def test_equal_settings_compare_and_hash_equal():
    values = {"logit_bias": {7: 1, 3: -2.5}, "suppress_tokens": [9, 4, 9], "grammar": Grammar("choice", ["a", "b"])}
    first, second = SamplingParams(**values), SamplingParams(**values | {"logit_bias": [(3, -2.5), (7, 1)]})
    assert first == second and hash(first) == hash(second)
    plain = first.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["logit_bias"] == [[3, -2.5], [7, 1.0]] and plain["suppress_tokens"] == [4, 9]
    assert plain["grammar"] == {"kind": "choice", "source": ["a", "b"]}
    assert Grammar("json_schema", {"type": "object"}).source == '{"type": "object"}'


def test_the_signature_for_editors_has_the_fields_and_defaults_of_the_class():
    """Type checkers read an `__init__` that Python does not run."""
    tree = ast.parse((Path(jakiro.__file__).parent / "config.py").read_text(encoding="utf-8"))
    (config,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SamplingParams")
    (init,) = (node for node in ast.walk(config) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    names = [argument.arg for argument in init.args.args[1:]]
    defaults = dict(zip(names, map(ast.literal_eval, init.args.defaults), strict=True))
    assert defaults == {field.name: field.default for field in fields(SamplingParams)}


def test_public_names_are_listed_and_others_are_refused():
    assert {*jakiro.__all__} <= {*dir(jakiro)}
    assert jakiro.Grammar is Grammar
    with pytest.raises(AttributeError, match="no attribute 'SamplingParam'"):
        _ = jakiro.SamplingParam
