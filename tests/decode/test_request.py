"""Answers that continue a given beginning: the continuation equals that of an undivided answer, with any drafter."""

from itertools import product

import pytest

from jakiro.config import Grammar, SamplingParams
from jakiro.decode.prefix_cache import PrefixStore
from jakiro.drafters.registry import METHODS
from tests.marks import often
from tests.support import head_for, prompt_ids, reference_answer, tiny_generator, tiny_model

QUESTION, LENGTH = "Why is the sky blue?", 24
RULES = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "no_repeat_ngram_size": 3}


@pytest.fixture(scope="module")
def generator():
    return tiny_generator()


CONTINUED = [("jakiro", 0), ("jakiro", 1), ("autoregressive", 1), ("eagle3", 0), ("jakiro+prompt_lookup", 1)]


@pytest.mark.parametrize(("method", "temperature"), often(CONTINUED, product(METHODS, (0, 1))))
def test_continuing_an_answer_gives_the_same_answer(both_passes, method, temperature):
    rules = RULES if temperature else {}
    sampling = SamplingParams(temperature, seed=7, max_new_tokens=LENGTH, **rules)
    for generator in both_passes[head_for(method)]:
        prefixes = PrefixStore().of()
        complete = generator.run(QUESTION, sampling, method, prefixes=prefixes)
        # Split after the first token, between two steps, inside a step, and before the last token
        for length in (1, 5, 6, LENGTH - 1):
            fork = generator.run(
                QUESTION, sampling, method, prefixes=prefixes, answer_prefix_ids=complete.token_ids[:length]
            )
            assert fork.token_ids == complete.token_ids and fork.text == complete.text
            assert fork.end_reason == complete.end_reason == "length"
            assert fork.header.num_prompt_tokens == complete.header.num_prompt_tokens
            assert bool(fork.steps) == (length < LENGTH - 1)
            if generator.max_reusable_tokens:
                # Only the last token is read again
                assert fork.header.num_reused_tokens == complete.header.num_prompt_tokens + length - 1


@pytest.mark.parametrize(
    ("method", "temperature"),
    often([("jakiro", 1), ("autoregressive", 0), ("dflash", 0)], product(METHODS, (0, 1))),
)
def test_continuing_after_another_token_equals_the_reference(both_passes, method, temperature):
    sampling = SamplingParams(temperature, seed=7, max_new_tokens=LENGTH, record_alternatives=True)
    for generator in both_passes[head_for(method)]:
        prefixes = PrefixStore().of()
        complete = generator.run(QUESTION, sampling, method, prefixes=prefixes)
        places = [
            complete.header.first_alternatives[0],
            *(place for step in complete.steps for place in step.alternatives),
        ]
        for position in (0, LENGTH - 6):
            alternative = next(
                token.token_id
                for token in places[position].tokens[1:]
                if token.token_id != complete.token_ids[position]
            )
            prefix_ids = [*complete.token_ids[:position], alternative]
            fork = generator.run(QUESTION, sampling, method, prefixes=prefixes, answer_prefix_ids=prefix_ids)
            rest = SamplingParams(temperature, seed=7, max_new_tokens=LENGTH - len(prefix_ids))
            stops = generator.target.stop_ids
            assert fork.token_ids == prefix_ids + reference_answer(
                tiny_model(), prompt_ids(QUESTION) + prefix_ids, rest, stops
            )
            assert fork.header.forced == ((position, alternative),) and fork.header.prefix_ids == tuple(prefix_ids)


@pytest.mark.parametrize("method", ["autoregressive", "jakiro"])
def test_answer_continues_inside_a_character_and_inside_a_stop_string(generator, method):
    sampling = SamplingParams(grammar=Grammar("choice", ("naïve 世界 🧪!",)), stop=("界 🧪",))
    complete = generator.run(QUESTION, sampling, method)
    assert complete.text == "naïve 世" and complete.end_reason == "stop" and len(complete.token_ids) > 14
    for length in range(1, len(complete.token_ids)):
        fork = generator.run(QUESTION, sampling, method, answer_prefix_ids=complete.token_ids[:length])
        assert (fork.token_ids, fork.text, fork.end_reason) == (complete.token_ids, complete.text, "stop")


@pytest.mark.parametrize(
    ("settings", "prefix_ids", "sentence"),
    [
        (
            {"max_new_tokens": 4},
            [5, 6, 7, 8],
            r"^answer_prefix_ids end the answer \(length\); leave out ",
        ),
        ({}, [5, 256], r"^answer_prefix_ids end the answer \(eos\); leave out "),
        (
            {"stop": ("g",)},
            [5, ord("g") - 33],
            r"^answer_prefix_ids end the answer \(stop\); leave out ",
        ),
        (
            {"grammar": Grammar("choice", ("gut", "gar"))},
            [ord("g") - 33, ord("x") - 33],
            r"^answer_prefix_ids leave the grammar at token 2, “x”; choose another one\.$",
        ),
        ({}, [5, -1], r"^answer_prefix_ids must be a list of whole numbers, 0 or more; got \[5, -1\]\.$"),
        ({}, "yes", r"^answer_prefix_ids must be a list of whole numbers, 0 or more; got 'yes'\.$"),
        ({}, [5, 9999], r"token 9,999 of the tokenizer; this model has 260 tokens"),
    ],
)
def test_prefix_that_cannot_be_continued_is_refused(generator, settings, prefix_ids, sentence):
    with pytest.raises(ValueError, match=sentence):
        generator.stream(QUESTION, SamplingParams(**settings), answer_prefix_ids=prefix_ids)


def test_forced_positions_after_the_prefix_are_refused(generator):
    with pytest.raises(ValueError, match=r"^forced must have indices below 2, the length of answer_prefix_ids; got "):
        generator.stream(QUESTION, answer_prefix_ids=[5, 6], forced=[2])
