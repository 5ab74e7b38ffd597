"""Log probabilities in the formats of OpenAI's two endpoints."""

import codecs
import math
from collections.abc import Mapping, Sequence

from jakiro.trace import Ranked, Scored

# OpenAI's value for a token with probability 0
_MIN_LOGPROB = -9999.0


class TextOffsets:
    """Character offsets of tokens in a text, as completions count them.

    A token that ends inside a UTF-8 character has the offset at which that character will appear, as the next token.

    Args:
        special_tokens: names by id, as text; special tokens are not part of the text.
        text: the beginning of the text. SentencePiece writes a blank before the first word, which is not part of it.
    """

    def __init__(self, special_tokens: Mapping[str, str], text: str) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._special_tokens, self._text = special_tokens, text
        self._offset: int | None = None

    def next(self, token: Scored) -> int:
        """Return the offset of the next token and advance past it."""
        if str(token.token_id) in self._special_tokens:
            return max(0, self._offset or 0)
        if self._offset is None:
            dropped = token.piece.startswith(b" ") and self._text[:1] not in ("", " ")
            self._offset = -1 if dropped else 0
        first = self._decoder.decode(token.piece[:1])
        pending = self._decoder.getstate()[0]
        # An incomplete character that this token does not continue was shown as a replacement character
        is_after_replacement = len(first) > 1 or bool(first and pending)
        start = max(0, self._offset + is_after_replacement)
        self._offset += len(first + self._decoder.decode(token.piece[1:]))
        return start


def token_name(token: Scored) -> str:
    """Return a token's text; a token with incomplete UTF-8 is named by its bytes, as in OpenAI's completions."""
    try:
        return token.piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.piece)


def token_dict(token: Scored) -> dict:
    """Return a token as chats show it."""
    text = token.piece.decode(errors="replace")
    return {"token": text, "logprob": bounded(token.logprob), "bytes": list(token.piece)}


def chat_logprobs(tokens: Sequence[tuple[Scored, ...]]) -> dict | None:
    """Return the log probabilities of a chat; each entry is the token, then the most likely ones in its place."""
    if not tokens:
        return None
    return {"content": [token_dict(first) | {"top_logprobs": list(map(token_dict, rest))} for first, *rest in tokens]}


def text_logprobs(tokens: Sequence[tuple[Scored, ...]], offsets: TextOffsets) -> dict | None:
    """Return the log probabilities of a completion; the first token of a prompt has none."""
    if not tokens:
        return None
    return {
        "tokens": [token_name(ranked[0]) for ranked in tokens],
        "token_logprobs": [bounded(ranked[0].logprob) for ranked in tokens],
        "top_logprobs": [_by_name(ranked) for ranked in tokens],
        "text_offset": [offsets.next(ranked[0]) for ranked in tokens],
    }


def alternatives_dict(place: Ranked) -> dict:
    """Return a token's rank and the most likely tokens in its place, with ids from which an answer can continue."""
    chosen, *likeliest = [token_dict(token) | {"id": token.token_id} for token in place.tokens]
    return chosen | {"rank": place.rank, "alternatives": likeliest}


def bounded(logprob: float) -> float | None:
    """Return a log probability that JSON can write: at least −9999; None if it is unknown (NaN)."""
    return None if math.isnan(logprob) else max(logprob, _MIN_LOGPROB)


def _by_name(ranked: tuple[Scored, ...]) -> dict[str, float] | None:
    if math.isnan(ranked[0].logprob):
        return None
    # The most likely tokens first; the chosen one follows if it is not among them
    return {token_name(token): bounded(token.logprob) for token in (*ranked[1:], ranked[0])}
