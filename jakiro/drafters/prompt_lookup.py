"""Prompt lookup: propose the tokens after the longest earlier occurrence of the text's suffix.

A suffix automaton over prompt and completion finds that occurrence in time independent of the length. The method needs
no draft pass and is most effective for summaries, quotes and code. It uses only integers on the host.
"""

import math
from collections.abc import Sequence

from jakiro.config import SamplingParams
from jakiro.core.noise import NoiseSource
from jakiro.drafters.base import Committed, Context, Drafter, Method, Needs, Proposer
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.drafters.merged import ChainSession

MIN_MATCH = 2
LONGEST_COUNTED = 8


class SuffixAutomaton:
    """A suffix automaton of a growing sequence with the first occurrence of each substring (Blumer et al., 1985)."""

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._first_end = [-1]
        self._last = 0
        self._size = 0
        self._match_state, self._match_length = 0, 0

    def extend(self, token_id: int) -> None:
        """Append a token. The current match is advanced first, so that it never matches itself."""
        self._advance_match(token_id)
        state = self._new_state(self._length[self._last] + 1, self._size)
        self._size += 1
        walk = self._last
        while walk != -1 and token_id not in self._next[walk]:
            self._next[walk][token_id] = state
            walk = self._link[walk]
        self._link[state] = 0 if walk == -1 else self._split(walk, token_id)
        self._last = state

    @property
    def match(self) -> tuple[int, int]:
        """Length of the longest suffix that occurred before, and the index where that occurrence ends."""
        return self._match_length, self._first_end[self._match_state]

    def _advance_match(self, token_id: int) -> None:
        while self._match_state and token_id not in self._next[self._match_state]:
            self._match_state = self._link[self._match_state]
            self._match_length = self._length[self._match_state]
        if token_id in self._next[self._match_state]:
            self._match_state = self._next[self._match_state][token_id]
            self._match_length += 1
        else:
            self._match_length = 0

    def _split(self, walk: int, token_id: int) -> int:
        """Return the state that the newest state links to; clone it if it also represents longer substrings."""
        target = self._next[walk][token_id]
        if self._length[target] == self._length[walk] + 1:
            return target
        clone = self._new_state(self._length[walk] + 1, self._first_end[target])
        self._next[clone] = dict(self._next[target])
        self._link[clone] = self._link[target]
        while walk != -1 and self._next[walk].get(token_id) == target:
            self._next[walk][token_id] = clone
            walk = self._link[walk]
        self._link[target] = clone
        if self._match_state == target and self._match_length <= self._length[clone]:
            self._match_state = clone
        return clone

    def _new_state(self, length: int, first_end: int) -> int:
        self._next.append({})
        self._link.append(-1)
        self._length.append(length)
        self._first_end.append(first_end)
        return len(self._next) - 1


class PromptLookupDrafter(Drafter):
    """A drafter without weights; every session copies from its own text."""

    chains = True

    proposers = (
        Proposer(
            "copied", "Copied from context", "Tokens that followed the same words earlier in the text; not guessed."
        ),
    )

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "PromptLookupSession":
        return PromptLookupSession(prompt)


class PromptLookupSession(ChainSession):
    """A session that continues an earlier occurrence of the suffix and counts how often that was right."""

    def __init__(self, prompt: Context) -> None:
        super().__init__(prompt.ids[-1:])
        self._begin(prompt.token_ids)

    def _begin(self, token_ids: Sequence[int]) -> None:
        self.token_ids: list[int] = []
        self._automaton = SuffixAutomaton()
        self._hits = [1.0] * (LONGEST_COUNTED + 1)
        self._tries = [2.0] * (LONGEST_COUNTED + 1)
        self._append(token_ids)

    def chain(self) -> tuple[list[int], list[float]]:
        """Return the tokens that followed, with hit rates by match length, which start at one hit in two tries."""
        length, end = self._automaton.match
        copied = self.token_ids[end + 1 : end + 1 + MAX_CHAIN] if length >= MIN_MATCH else []
        places = (min(length + place, LONGEST_COUNTED) for place in range(len(copied)))
        return copied, [math.log(self._hits[place] / self._tries[place]) for place in places]

    def observe(self, committed: Committed) -> None:
        super().observe(committed)
        length, _ = self._automaton.match
        for place, (copied, chosen) in enumerate(zip(self.chain()[0], committed.token_ids, strict=False)):
            counted = min(length + place, LONGEST_COUNTED)
            self._tries[counted] += 1
            self._hits[counted] += copied == chosen
            if copied != chosen:
                break
        self._append(committed.token_ids)

    def rewind(self, length: int) -> None:
        self._begin(self.token_ids[:length])

    def _append(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            self.token_ids.append(token_id)
            self._automaton.extend(token_id)


METHOD = Method(
    name="prompt_lookup",
    title="Copied from context",
    sentence="Copies tokens that followed the same words earlier in the text.",
    paper=None,
    proposers=PromptLookupDrafter.proposers,
    needs=Needs(),
    load=lambda resources: PromptLookupDrafter(),
    aliases=("context",),
    drafts=False,
)
