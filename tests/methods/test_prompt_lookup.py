"""Copied chains: the longest earlier occurrence, its estimates, and text that never depends on it."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from jakiro.config import SamplingParams
from jakiro.methods import WITH_COPIES
from jakiro.methods.prompt_lookup import Copier, SuffixAutomaton
from tests.support import TREE

REPEATING = "the cat sat on the mat; the cat sat on the mat; the cat sat on"


def longest_earlier_end(ids: list[int]) -> tuple[int, int]:
    """By brute force: length and first end of the longest suffix that also occurs earlier."""
    count = len(ids)
    for length in range(count - 1, 0, -1):
        for end in range(length - 1, count - 1):
            if ids[end - length + 1 : end + 1] == ids[count - length :]:
                return length, end
    return 0, -1


@settings(max_examples=200)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_the_automaton_finds_what_a_search_of_everything_finds(ids):
    automaton, seen = SuffixAutomaton(), []
    for token_id in ids:
        seen.append(token_id)
        automaton.extend(token_id)
        length, end = automaton.match
        assert (length, end if length else -1) == longest_earlier_end(seen)


def test_the_chain_is_the_earlier_continuation_and_its_estimate_the_hit_rate():
    copier = Copier([1, 2, 3, 4, 5, 9, 1, 2])
    chain, log_estimates = copier.propose()
    assert chain == [3, 4, 5, 9, 1, 2]
    assert log_estimates == [math.log(1 / 2)] * 6
    copier.observe([3, 4, 7])
    # Match lengths 2 and 3 were right once, 4 was wrong once.
    assert (copier._rate(2), copier._rate(3), copier._rate(4)) == (2 / 3, 2 / 3, 1 / 3)
    assert copier.propose() == ([], [])


def test_chains_beside_a_head_s_tree_go_back_with_it(scripted):
    stream = scripted.stream(REPEATING, SamplingParams(max_new_tokens=16), WITH_COPIES.name, TREE)
    next(stream)
    session = stream._session
    known = list(session.first.known)
    # Back into the question, at the last place after which something can be copied
    length = next(count for count in range(len(known) - 1, 0, -1) if Copier(known[:count]).propose()[0])
    expected = Copier(known[:length]).propose()
    assert session.chains.chain() != expected
    session.rewind(length)
    assert session.chains.chain() == expected and session.first.known == known[:length]
