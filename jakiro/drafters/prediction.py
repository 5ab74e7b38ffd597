"""Predicted outputs: a text that the client expects, verified as a chain in the draft tree.

OpenAI's API calls the text `prediction`. The chain starts where the answer agrees with the text. After a divergence it
starts again behind the last tokens of the answer, wherever the text repeats them.
"""

import math
from collections.abc import Sequence

from jakiro.config import SamplingParams
from jakiro.core.noise import NoiseSource
from jakiro.drafters.base import Committed, Context, Drafter, Method, Needs, Proposer
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.drafters.merged import ChainSession

PROPOSER = "prediction"
# Tokens that must agree before the text is followed again. Longer runs are preferred, because single tokens repeat.
MIN_MATCH, MAX_MATCH = 2, 8


class PredictionDrafter(Drafter):
    """Drafts the text in `Context.prediction_ids`; it has no weights."""

    chains = True
    proposers = (Proposer(PROPOSER, "Prediction", "Copied from the text that the client expects."),)

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "PredictionSession":
        return PredictionSession(prompt)


class PredictionSession(ChainSession):
    """Follows the predicted text through one answer.

    The first token of an answer is chosen before the session starts, so it is the first one compared.
    """

    def __init__(self, prompt: Context) -> None:
        super().__init__(prompt.ids[-1:])
        self._prediction = list(prompt.prediction_ids)
        self._places = self._index_runs()
        self._start_length = len(prompt.token_ids) - 1
        self._token_ids = list(prompt.token_ids)
        self._next: int | None = 0
        # Initial estimate: one rejection in ten tries
        self._accepted, self._tried = 9.0, 10.0
        self._follow(self._start_length)

    def chain(self) -> tuple[list[int], list[float]]:
        if self._next is None:
            return [], []
        copied = self._prediction[self._next : self._next + MAX_CHAIN]
        return copied, [math.log(self._accepted / self._tried)] * len(copied)

    def observe(self, committed: Committed) -> None:
        super().observe(committed)
        for copied, chosen in zip(self.chain()[0], committed.token_ids, strict=False):
            self._tried += 1
            self._accepted += copied == chosen
            if copied != chosen:
                break
        length = len(self._token_ids)
        self._token_ids += committed.token_ids
        self._follow(length)

    def rewind(self, length: int) -> None:
        self._token_ids = self._token_ids[:length]
        self._next = 0
        self._follow(self._start_length)

    def _index_runs(self) -> dict[tuple[int, ...], list[int]]:
        """Return, for every run of `MIN_MATCH` tokens in the prediction, the places behind it."""
        places: dict[tuple[int, ...], list[int]] = {}
        for end in range(MIN_MATCH, len(self._prediction) + 1):
            places.setdefault(tuple(self._prediction[end - MIN_MATCH : end]), []).append(end)
        return places

    def _follow(self, start: int) -> None:
        """Move the place in the prediction past the tokens from `start` on."""
        for length in range(start, len(self._token_ids)):
            token_id = self._token_ids[length]
            if self._next is not None and self._prediction[self._next : self._next + 1] == [token_id]:
                self._next += 1
            else:
                self._next = self._find_place(self._token_ids[self._start_length : length + 1])

    def _find_place(self, answer_ids: Sequence[int]) -> int | None:
        """Return the place behind the longest end of the answer that the prediction contains; None if there is none."""
        candidates = self._places.get(tuple(answer_ids[-MIN_MATCH:]), ())
        return max(candidates, key=lambda place: self._match_length(place, answer_ids), default=None)

    def _match_length(self, place: int, answer_ids: Sequence[int]) -> int:
        length = 0
        while length < min(MAX_MATCH, place, len(answer_ids)):
            if self._prediction[place - 1 - length] != answer_ids[-1 - length]:
                break
            length += 1
        return length


# Used without a draft head, to draft only the prediction. Not registered: without a prediction it is plain decoding.
METHOD = Method(
    name="prediction",
    title="Prediction",
    sentence="Verifies the text that the client expects.",
    paper=None,
    proposers=PredictionDrafter.proposers,
    needs=Needs(),
    load=lambda resources: PredictionDrafter(),
    drafts=False,
)
