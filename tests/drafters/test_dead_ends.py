"""Settings that forbid every token: the answer ends with this reason, with any drafter."""

import functools

import pytest

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.registry import METHODS, PLAIN
from jakiro.trace import Trace
from tests.backends.static import static_generator
from tests.support import TOKENIZER_SIZE, heads_of, tiny_generator

CASES = [(name, head) for name, method in METHODS.items() for head in heads_of(method)]
TREE = TreeConfig(width=4, depth=4, nodes=12)
# Tokens that are allowed once each; no token is allowed after them
LEFT = (101, 102, 103)


def until_none_is_left(temperature: float, **settings) -> SamplingParams:
    """Return settings that allow three tokens, each of them once."""
    suppressed = tuple(token_id for token_id in range(TOKENIZER_SIZE) if token_id not in LEFT)
    return SamplingParams(
        temperature, seed=3, max_new_tokens=9, suppress_tokens=suppressed, no_repeat_ngram_size=1, **settings
    )


FILTERS = ({}, {"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1})


@pytest.fixture(scope="module")
def make():
    return functools.cache(tiny_generator)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(("method", "head"), CASES)
def test_an_answer_ends_where_every_token_is_forbidden(method, head, temperature, filters, make):
    trace = make(head).run("Go on.", until_none_is_left(temperature, **filters), method, TREE)
    assert sorted(trace.token_ids) == sorted(LEFT)
    assert trace.end_reason == "no_token"
    assert Trace.from_json(trace.to_json()) == trace


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_it_ends_the_same_in_passes_of_fixed_shape(temperature, filters, without_compiled_functions):
    generator = static_generator("summed", measured=True)
    for method in ("jakiro", PLAIN.name):
        trace = generator.run("Go on.", until_none_is_left(temperature, **filters), method, TREE)
        assert sorted(trace.token_ids) == sorted(LEFT) and trace.end_reason == "no_token"


def test_text_that_waits_for_more_is_delivered_at_the_end(make):
    """The text so far is the beginning of a stop string."""
    text = make("summed").run("Go on.", until_none_is_left(0), PLAIN.name, TREE).text
    for method in ("jakiro", PLAIN.name):
        trace = make("summed").run("Go on.", until_none_is_left(0, stop=(f"{text}!",)), method, TREE)
        assert trace.end_reason == "no_token" and trace.text == text


@pytest.mark.parametrize("method", ["jakiro", PLAIN.name])
def test_a_prompt_that_no_token_may_follow_is_refused(method, make):
    sampling = SamplingParams(suppress_tokens=tuple(range(TOKENIZER_SIZE)))
    with pytest.raises(ValueError, match=r"^No token can follow this prompt: the settings forbid every token, "):
        make("summed").run("Go on.", sampling, method, TREE)
    assert make("summed").run("Go on.", SamplingParams(max_new_tokens=3), method, TREE).end_reason == "length"


def test_alternatives_and_logprobs_are_those_of_the_tokens_that_came(make):
    sampling = until_none_is_left(1, logprobs=2, record_alternatives=True)
    for method in ("jakiro", PLAIN.name):
        trace = make("summed").run("Go on.", sampling, method, TREE)
        for step in trace.steps:
            assert len(step.alternatives) == len(step.logprobs) == len(step.committed_ids)
        places = [*trace.header.first_alternatives, *(place for step in trace.steps for place in step.alternatives)]
        assert [len(place.tokens) - 1 for place in places] == [3, 2, 1], "the tokens that may still come"
        assert Trace.from_json(trace.to_json()) == trace
