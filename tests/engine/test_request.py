"""A request whose prompt ends with the beginning of an answer: what follows is what would have followed."""

from dataclasses import replace

import pytest

from jakiro.config import SamplingParams
from tests.support import TREE, tiny_generator

QUESTION, LENGTH = "Why is the sky blue?", 24


@pytest.fixture(scope="module")
def generator():
    return tiny_generator()


def begun(request, answer_ids):
    """The request with the beginning of an answer."""
    prompt = request.prompt
    return replace(request, prompt=replace(prompt, ids=(*prompt.ids, *answer_ids)))


@pytest.mark.parametrize(
    "sampling", [SamplingParams(max_new_tokens=LENGTH), SamplingParams(1.0, max_new_tokens=LENGTH)]
)
@pytest.mark.parametrize("method", ["autoregressive", "jakiro"])
@pytest.mark.parametrize("given", [1, 7, LENGTH - 1])
def test_an_answer_that_goes_on_is_the_one_that_was_begun(generator, sampling, method, given):
    whole = generator.run(QUESTION, sampling, "autoregressive")
    request = begun(generator._request(QUESTION, sampling, TREE), whole.token_ids[:given])
    stream = generator._start(request, method)
    steps = list(stream)
    assert [*whole.token_ids[:given], *stream.trace.token_ids] == whole.token_ids
    assert stream.trace.text == whole.text and stream.trace.end_reason == whole.end_reason == "length"
    assert stream.trace.header.num_prompt_tokens == whole.header.num_prompt_tokens
    assert bool(steps) == (given < LENGTH - 1)


def test_a_beginning_that_ends_the_answer_is_refused(generator):
    request = generator._request(QUESTION, SamplingParams(max_new_tokens=4), TREE)
    with pytest.raises(
        ValueError, match=r"The beginning of the answer ends it \(length\); leave out its last tokens\."
    ):
        generator._start(begun(request, [5, 6, 7, 8]), "jakiro")
