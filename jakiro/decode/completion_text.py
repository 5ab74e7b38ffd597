"""Which of the committed tokens belong to an answer, and the text that they complete."""

from collections.abc import Collection, Sequence

from jakiro.text import IncrementalDecoder, TokenText, UntilStop


class AnswerText:
    """An answer as it grows, up to the first stop token, the first stop text, or as many tokens as it may have.

    Args:
        stop_ids: tokens that end it, the last of which belongs to it.
        stops: texts that end it and do not belong to it; the token that completes one does.
        limit: tokens at most. limit_reason: what has then ended it, see `Trace.end_reason`.

    Attributes:
        num_tokens: so far.
        end_reason: None while it goes on.
    """

    def __init__(
        self, token_text: TokenText, stop_ids: Collection[int], stops: Sequence[str], limit: int, limit_reason: str
    ) -> None:
        self._stop_ids, self._limit, self._limit_reason = stop_ids, limit, limit_reason
        self._decoder = IncrementalDecoder(token_text)
        self._until = UntilStop(stops) if stops else None
        self.num_tokens, self.end_reason = 0, None
        # Tokens that are not decoded yet, and text that `text` has not given yet
        self._waiting_ids: list[int] = []
        self._ready = ""

    def take(self, committed_ids: list[int]) -> list[int]:
        """Those of newly committed tokens that belong to the answer. Without stop texts nothing is decoded yet."""
        own_ids = committed_ids[: self._limit - self.num_tokens]
        stops = [index for index, token_id in enumerate(own_ids) if token_id in self._stop_ids]
        if stops:
            own_ids = own_ids[: stops[0] + 1]
        if self._until is None:
            self._waiting_ids += own_ids
        else:
            own_ids = self._until_stop(own_ids)
        self.num_tokens += len(own_ids)
        if self._until is not None and self._until.found:
            self.end_reason = "stop"
        elif stops:
            self.end_reason = "eos"
        elif self.num_tokens >= self._limit:
            self.end_reason = self._limit_reason
        return own_ids

    def end(self, reason: str) -> None:
        """End the answer for a reason that its tokens do not show, unless it has ended already."""
        if self.end_reason is not None:
            return
        self.end_reason = reason
        if self._until is not None:
            self._ready += self._until.push(self._decoder.finish()) + self._until.finish()

    def text(self) -> str:
        """What was completed since the last call, and at the end what still waited for more."""
        if self._until is None:
            self._ready = self._decoder.push(self._waiting_ids) + (self._decoder.finish() if self.end_reason else "")
            self._waiting_ids = []
        ready, self._ready = self._ready, ""
        return ready

    def _until_stop(self, own_ids: list[int]) -> list[int]:
        """The tokens up to that in which a stop text is complete."""
        for count, token_id in enumerate(own_ids, start=1):
            self._ready += self._until.push(self._decoder.push([token_id]))
            if self._until.found:
                return own_ids[:count]
        if any(each in self._stop_ids for each in own_ids[-1:]) or self.num_tokens + len(own_ids) >= self._limit:
            self._ready += self._until.push(self._decoder.finish()) + self._until.finish()
        return own_ids
