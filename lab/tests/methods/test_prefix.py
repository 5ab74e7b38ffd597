"""Prefix caches: an answer of the lab's methods reuses the rows of an earlier chat and is the same."""

import pytest

from jakiro.decode.prefix_cache import PrefixStore
from lab import KNOWN, METHODS
from tests.decode import test_prefix_cache as prefix
from tests.support import tiny_generator

# Methods that draft with the target's first layers read the prompt again
AGAIN = {"exit", "distillspec", "s2d", "mcsd_exit"}


@pytest.fixture(scope="module")
def mixing():
    return {"summed": tiny_generator(methods=KNOWN)}


@pytest.mark.parametrize("sampling", prefix.SAMPLINGS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_a_chat_of_three_turns_is_the_same_with_a_prefix_cache(mixing, method, sampling):
    generator = mixing["summed"]
    prefixes, messages, before = PrefixStore().of(), prefix.conversation("Why is it so?"), 0
    for turn in range(3):
        trace = prefix.assert_same_with_and_without(generator, prefixes, messages, sampling, method)
        assert trace.header.num_reused_tokens >= (before if generator.max_reusable_tokens else 0)
        before = trace.header.num_prompt_tokens
        messages += prefix.conversation("", trace.text)[1:] + prefix.conversation(f"And {turn}?")


@pytest.mark.parametrize(
    "method", [method.name for method in METHODS if method.needs.head and method.name not in AGAIN]
)
def test_the_head_reuses_its_rows(mixing, method):
    prefix.test_head_reuses_its_rows(mixing, "summed", method)
