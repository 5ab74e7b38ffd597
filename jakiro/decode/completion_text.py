"""Text of a completion: which committed tokens belong to it, and the text that they complete."""

from collections.abc import Collection, Sequence

from jakiro.text import IncrementalDecoder, TokenText, UntilStop


class CompletionText:
    """A growing completion, up to the first stop token, the first stop text, or the token limit.

    Args:
        stop_ids: tokens that end it; the stop token belongs to it.
        stops: texts that end it. The stop text is cut off, but the token that completes it counts.
        limit: maximum number of tokens.
        limit_reason: end reason at the limit, see `Trace.end_reason`.

    Attributes:
        num_tokens: number of tokens so far.
        end_reason: None until the completion ends.
    """

    def __init__(
        self, token_text: TokenText, stop_ids: Collection[int], stops: Sequence[str], limit: int, limit_reason: str
    ) -> None:
        self._stop_ids, self._limit, self._limit_reason = stop_ids, limit, limit_reason
        self._decoder = IncrementalDecoder(token_text)
        self._until_stop = UntilStop(stops) if stops else None
        self.num_tokens = 0
        self.end_reason: str | None = None
        # Tokens that are not decoded yet, and text that `text` has not returned yet
        self._undecoded_ids: list[int] = []
        self._ready = ""

    def take(self, new_ids: list[int]) -> list[int]:
        """Return those of a step's tokens that belong to the completion.

        They are cut at the limit, then after the first stop token, then after the token that completes a stop text. If
        several of these apply, the end reason is that of the stop text, then of the stop token, then of the limit.

        Without stop texts nothing is decoded until `text` is called.
        """
        completion_ids = new_ids[: self._limit - self.num_tokens]
        stop_places = [index for index, token_id in enumerate(completion_ids) if token_id in self._stop_ids]
        if stop_places:
            completion_ids = completion_ids[: stop_places[0] + 1]
        if self._until_stop is None:
            self._undecoded_ids += completion_ids
        else:
            completion_ids = self._cut_at_stop(completion_ids)
        self.num_tokens += len(completion_ids)
        if self._until_stop is not None and self._until_stop.found:
            self.end_reason = "stop"
        elif stop_places:
            self.end_reason = "eos"
        elif self.num_tokens >= self._limit:
            self.end_reason = self._limit_reason
        return completion_ids

    def end(self, reason: str) -> None:
        """End the completion for another reason, such as that no token can follow, unless it has ended already."""
        if self.end_reason is not None:
            return
        self.end_reason = reason
        if self._until_stop is not None:
            self._ready += self._until_stop.push(self._decoder.finish()) + self._until_stop.finish()

    def text(self) -> str:
        """Return the text completed since the last call, and at the end the rest."""
        if self._until_stop is None:
            self._ready = self._decoder.push(self._undecoded_ids) + (self._decoder.finish() if self.end_reason else "")
            self._undecoded_ids = []
        ready, self._ready = self._ready, ""
        return ready

    def _cut_at_stop(self, completion_ids: list[int]) -> list[int]:
        """Return the tokens up to the one that completes a stop text."""
        for count, token_id in enumerate(completion_ids, start=1):
            self._ready += self._until_stop.push(self._decoder.push([token_id]))
            if self._until_stop.found:
                return completion_ids[:count]
        is_stop_token = completion_ids[-1:] and completion_ids[-1] in self._stop_ids
        if is_stop_token or self.num_tokens + len(completion_ids) >= self._limit:
            self._ready += self._until_stop.push(self._decoder.finish()) + self._until_stop.finish()
        return completion_ids
