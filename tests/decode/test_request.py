"""An answer that goes on after a given beginning: what follows is what would have followed, whatever drafts it."""

import pytest

from jakiro.config import Grammar, SamplingParams
from jakiro.decode.prefix_cache import PrefixStore
from jakiro.drafters.registry import METHODS
from tests.support import head_for, prompt_ids, reference_answer, tiny_generator, tiny_model

QUESTION, LENGTH = "Why is the sky blue?", 24
RULES = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "no_repeat_ngram_size": 3}


@pytest.fixture(scope="module")
def generator():
    return tiny_generator()


@pytest.mark.parametrize(("temperature", "rules"), [(0, {}), (1, RULES)])
@pytest.mark.parametrize("method", METHODS)
def test_the_same_token_writes_the_same_answer(both_passes, method, temperature, rules):
    sampling = SamplingParams(temperature, seed=7, max_new_tokens=LENGTH, **rules)
    for generator in both_passes[head_for(method)]:
        prefixes = PrefixStore().of()
        whole = generator.run(QUESTION, sampling, method, prefixes=prefixes)
        # After the first token, between two steps and within one, and before the last
        for given in (1, 5, 6, LENGTH - 1):
            fork = generator.run(
                QUESTION, sampling, method, prefixes=prefixes, answer_prefix_ids=whole.token_ids[:given]
            )
            assert fork.token_ids == whole.token_ids and fork.text == whole.text
            assert fork.end_reason == whole.end_reason == "length"
            assert fork.header.num_prompt_tokens == whole.header.num_prompt_tokens
            assert bool(fork.steps) == (given < LENGTH - 1)
            if generator.max_reusable_tokens:
                # Only the token that was chosen is read
                assert fork.header.num_reused_tokens == whole.header.num_prompt_tokens + given - 1


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("method", METHODS)
def test_another_token_writes_what_plain_decoding_writes_after_it(both_passes, method, temperature):
    sampling = SamplingParams(temperature, seed=7, max_new_tokens=LENGTH, record_alternatives=True)
    for generator in both_passes[head_for(method)]:
        prefixes = PrefixStore().of()
        whole = generator.run(QUESTION, sampling, method, prefixes=prefixes)
        places = [whole.header.first_alternatives[0], *(each for step in whole.steps for each in step.alternatives)]
        for place in (0, LENGTH - 6):
            other = next(each.token_id for each in places[place].tokens[1:] if each.token_id != whole.token_ids[place])
            given = [*whole.token_ids[:place], other]
            fork = generator.run(QUESTION, sampling, method, prefixes=prefixes, answer_prefix_ids=given)
            rest = SamplingParams(temperature, seed=7, max_new_tokens=LENGTH - len(given))
            stops = generator.target.stop_ids
            assert fork.token_ids == given + reference_answer(tiny_model(), prompt_ids(QUESTION) + given, rest, stops)
            assert fork.header.forced == ((place, other),) and fork.header.prefix_ids == tuple(given)


@pytest.mark.parametrize("method", ["autoregressive", "jakiro"])
def test_a_fork_in_the_middle_of_a_character_and_of_a_stop_text(generator, method):
    asked = SamplingParams(grammar=Grammar("choice", ("naïve 世界 🧪!",)), stop=("界 🧪",))
    whole = generator.run(QUESTION, asked, method)
    assert whole.text == "naïve 世" and whole.end_reason == "stop" and len(whole.token_ids) > 14
    for given in range(1, len(whole.token_ids)):
        fork = generator.run(QUESTION, asked, method, answer_prefix_ids=whole.token_ids[:given])
        assert (fork.token_ids, fork.text, fork.end_reason) == (whole.token_ids, whole.text, "stop")


@pytest.mark.parametrize(
    ("settings", "given", "sentence"),
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
        ({}, [5, 9999], r"token 9,999 of the tokenizer; this model knows 260 tokens"),
    ],
)
def test_a_beginning_that_cannot_be_gone_on_with_is_refused(generator, settings, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        generator.stream(QUESTION, SamplingParams(**settings), answer_prefix_ids=given)


def test_forced_places_are_in_the_beginning(generator):
    with pytest.raises(ValueError, match=r"^Forced places must be below 2, the length of the answer's beginning; you "):
        generator.stream(QUESTION, answer_prefix_ids=[5, 6], forced=[2])
