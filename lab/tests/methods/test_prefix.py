"""An answer of the lab's methods that begins like an earlier one takes over what was read, and is the same."""

import pytest

from lab import KNOWN, METHODS
from tests.engine import test_prefix as prefix
from tests.support import tiny_generator

# Drafts on top of the target's first layers read the prompt again
AGAIN = {"exit", "distillspec", "s2d", "mcsd_exit"}


@pytest.fixture(scope="module")
def mixing():
    return {"summed": tiny_generator(methods=KNOWN)}


@pytest.mark.parametrize("sampling", prefix.SAMPLINGS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_a_chat_of_three_turns_is_the_same_and_reads_on(mixing, method, sampling):
    prefix.test_a_chat_of_three_turns_is_the_same_and_reads_on(mixing, "summed", method, sampling)


@pytest.mark.parametrize("method", [each.name for each in METHODS if each.needs.head and each.name not in AGAIN])
def test_the_head_takes_over_its_rows(mixing, method):
    prefix.test_the_head_takes_over_its_rows(mixing, "summed", method)
