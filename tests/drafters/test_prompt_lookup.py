"""Copied chains: the longest earlier occurrence and its estimates; the text never depends on them."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jakiro.config import SamplingParams
from jakiro.drafters.base import Committed, Context
from jakiro.drafters.prompt_lookup import PromptLookupSession, SuffixAutomaton
from jakiro.drafters.registry import WITH_COPIES
from tests.support import TREE

REPEATING = "the cat sat on the mat; the cat sat on the mat; the cat sat on"


def copying(ids: list[int]) -> PromptLookupSession:
    return PromptLookupSession(Context(ids, torch.tensor(ids), torch.zeros(len(ids) - 1, 1)))


def longest_earlier_end(ids: list[int]) -> tuple[int, int]:
    """Return the length and first end of the longest suffix that also occurs earlier, by exhaustive search."""
    count = len(ids)
    for length in range(count - 1, 0, -1):
        for end in range(length - 1, count - 1):
            if ids[end - length + 1 : end + 1] == ids[count - length :]:
                return length, end
    return 0, -1


@settings(max_examples=200)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_automaton_finds_the_match_of_an_exhaustive_search(ids):
    automaton, seen = SuffixAutomaton(), []
    for token_id in ids:
        seen.append(token_id)
        automaton.extend(token_id)
        length, end = automaton.match
        assert (length, end if length else -1) == longest_earlier_end(seen)
        # A state represents the strings longer than its link's: the match must be one of them, also after a split
        state = automaton._match_state
        assert not state or automaton._length[automaton._link[state]] < length <= automaton._length[state]


def test_chain_is_the_earlier_continuation_and_its_estimate_is_the_hit_rate():
    session = copying([1, 2, 3, 4, 5, 9, 1, 2])
    chain, log_estimates = session.chain()
    assert chain == [3, 4, 5, 9, 1, 2]
    assert log_estimates == [math.log(1 / 2)] * 6
    session.observe(Committed([3, 4, 7], torch.tensor([3, 4, 7]), torch.zeros(3, 1)))
    # Match lengths 2 and 3 were correct once, 4 was wrong once
    assert [session._hits[length] / session._tries[length] for length in (2, 3, 4)] == [2 / 3, 2 / 3, 1 / 3]
    assert session.chain() == ([], [])


def test_rewind_of_merged_drafters_rewinds_copied_chains(scripted):
    stream = scripted.stream(REPEATING, SamplingParams(max_new_tokens=16), WITH_COPIES.name, TREE)
    next(stream)
    session = stream._session
    ids = list(session.first.token_ids)
    # Rewind into the prompt, to the last position with something to copy
    length = next(count for count in range(len(ids) - 1, 0, -1) if copying(ids[:count]).chain()[0])
    expected = copying(ids[:length]).chain()
    assert session.chains.chain() != expected
    session.rewind(length)
    assert session.chains.chain() == expected and session.first.token_ids == ids[:length]
