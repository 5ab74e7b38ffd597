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
ALLOWED = (101, 102, 103)


def three_tokens_only(temperature: float, **settings) -> SamplingParams:
    """Return settings that allow three tokens, each of them once."""
    suppressed = tuple(token_id for token_id in range(TOKENIZER_SIZE) if token_id not in ALLOWED)
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
def test_answer_ends_when_every_token_is_forbidden(method, head, temperature, filters, make):
    trace = make(head).run("Go on.", three_tokens_only(temperature, **filters), method, TREE)
    assert sorted(trace.token_ids) == sorted(ALLOWED)
    assert trace.end_reason == "no_token"
    *earlier, last = trace.steps
    assert None not in [step.bonus_token_id for step in earlier]
    assert (last.bonus_token_id, last.bonus_piece) == (None, b""), "the target added no token"
    assert Trace.from_json(trace.to_json()) == trace


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_answer_ends_in_the_same_way_with_static_buffers(temperature, filters, without_compiled_functions):
    generator = static_generator("summed", measured=True)
    for method in ("jakiro", PLAIN.name):
        trace = generator.run("Go on.", three_tokens_only(temperature, **filters), method, TREE)
        assert sorted(trace.token_ids) == sorted(ALLOWED) and trace.end_reason == "no_token"


def test_held_back_text_is_returned_at_the_end(make):
    """The text so far is the beginning of a stop string."""
    text = make("summed").run("Go on.", three_tokens_only(0), PLAIN.name, TREE).text
    for method in ("jakiro", PLAIN.name):
        trace = make("summed").run("Go on.", three_tokens_only(0, stop=(f"{text}!",)), method, TREE)
        assert trace.end_reason == "no_token" and trace.text == text


@pytest.mark.parametrize("method", ["jakiro", PLAIN.name])
def test_prompt_that_no_token_can_follow_is_refused(method, make):
    sampling = SamplingParams(suppress_tokens=tuple(range(TOKENIZER_SIZE)))
    with pytest.raises(ValueError, match=r"^No token can follow this prompt: the settings forbid every token, "):
        make("summed").run("Go on.", sampling, method, TREE)
    assert make("summed").run("Go on.", SamplingParams(max_new_tokens=3), method, TREE).end_reason == "length"


def test_alternatives_and_logprobs_cover_the_committed_tokens(make):
    sampling = three_tokens_only(1, logprobs=2, record_alternatives=True)
    for method in ("jakiro", PLAIN.name):
        trace = make("summed").run("Go on.", sampling, method, TREE)
        for step in trace.steps:
            assert len(step.alternatives) == len(step.logprobs) == len(step.committed_ids)
        places = [*trace.header.first_alternatives, *(place for step in trace.steps for place in step.alternatives)]
        assert [len(place.tokens) - 1 for place in places] == [3, 2, 1], "the tokens that are still allowed"
        assert Trace.from_json(trace.to_json()) == trace
