"""Token ids to bytes and text, so that an incomplete character is handled in one module."""

import codecs
import json
import re
from collections.abc import Iterable, Sequence

# The table of byte-level BPE (GPT-2): printable bytes map to themselves, the others to U+0100 and up
_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE}
_BYTE_OF_CHARACTER |= {chr(256 + index): byte for index, byte in enumerate(sorted({*range(256)} - _PRINTABLE))}
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_value(name: str) -> int | None:
    """Return the byte of a SentencePiece byte token `<0xNN>`; None for any other token."""
    match = _BYTE_TOKEN.fullmatch(name)
    return int(match[1], 16) if match else None


class TokenText:
    """Bytes, names and text of a tokenizer's ids.

    Args:
        tokenizer: a transformers tokenizer. Byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM) and SentencePiece-like
            vocabularies (`▁` for a space, `<0xNN>` for a byte) are supported.

    Attributes:
        special_tokens: names of the tokens that `decode` omits, by id.
        byte_level: the text is the joined bytes of the ids, read as UTF-8.
        decodes_locally: see `_decodes_locally`.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        steps = _decoder_steps(tokenizer)
        kinds = {step.get("type") for step in steps}
        self._has_byte_pieces = "ByteLevel" in kinds
        self.byte_level = self._has_byte_pieces and kinds <= {"ByteLevel", "Fuse"}
        self.decodes_locally = _decodes_locally(steps)
        added_tokens = getattr(tokenizer, "added_tokens_decoder", {})
        self.special_tokens = {int(token_id): str(token) for token_id, token in added_tokens.items() if token.special}
        for token_id, name in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True):
            self.special_tokens.setdefault(int(token_id), str(name))
        self._pieces: dict[int, bytes] = {}

    def piece(self, token_id: int) -> bytes:
        """Return the bytes of a token: the name of a special token, b"" for an id outside the vocabulary."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._read_piece(token_id)
        return piece

    def is_byte(self, token_id: int) -> bool:
        """Return whether a token is a SentencePiece byte; its text depends on the bytes next to it."""
        name = self._tokenizer.convert_ids_to_tokens(token_id)
        return not self.byte_level and name is not None and _byte_value(name) is not None

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens and without any cleaning of spaces."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a bare text, in which names of special tokens are plain characters."""
        return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def _read_piece(self, token_id: int) -> bytes:
        name = self.special_tokens.get(token_id)
        if name is not None:
            return name.encode()
        name = self._tokenizer.convert_ids_to_tokens(token_id)
        if name is None:
            return b""
        if self._has_byte_pieces:
            values = [_BYTE_OF_CHARACTER.get(character) for character in name]
            # An added token may have characters outside the table; then its bytes are those of its name
            return name.encode() if None in values else bytes(values)
        byte = _byte_value(name)
        return name.replace("▁", " ").encode() if byte is None else bytes([byte])


def _decoder_steps(tokenizer) -> list[dict]:
    """Return the settings of a fast tokenizer's decoders in order; one empty dictionary if it has none."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    settings = json.loads(decoder.__getstate__()) if decoder is not None else {}
    return settings.get("decoders", [settings])


# The step of `jakiro.loading.gguf_tokenizer` that removes the prefix blank of a SentencePiece text
PREFIX_BLANK = r"\A▁"


def _decodes_locally(steps: list[dict]) -> bool:
    """Return whether a token's text depends only on the run of bytes it is in and on whether it is the first token.

    This is true of SentencePiece's decoders: a sign replaces each space, bytes are joined, the first space is dropped.
    """
    return all(
        step.get("type") in ("ByteFallback", "Fuse", "Metaspace")
        or (step.get("type") == "Replace" and _replaces_locally(step["pattern"]))
        or (step.get("type") == "Strip" and step["start"] <= 1 and step["stop"] == 0)
        for step in steps
    )


def _replaces_locally(pattern: dict) -> bool:
    return len(pattern.get("String", "")) == 1 or pattern.get("Regex") == PREFIX_BLANK


class IncrementalDecoder:
    """A text that grows with the ids: all results of `push` and `finish`, joined, equal `decode` of all ids.

    An incomplete UTF-8 character is held back until its last byte arrives. If the tokenizer decodes locally, as
    byte-level and SentencePiece vocabularies do, the time is proportional to the new ids; otherwise every push decodes
    the whole text.
    """

    def __init__(self, token_text: TokenText):
        self._text = token_text
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._ids: list[int] = []
        self._num_characters = 0

    def push(self, token_ids: Iterable[int]) -> str:
        """Return the text that these ids complete; it may be empty."""
        ordinary = [token for token in token_ids if token not in self._text.special_tokens]
        if self._text.byte_level:
            return self._bytes.decode(b"".join(map(self._text.piece, ordinary)))
        self._ids += ordinary
        num_settled = len(self._ids)
        while num_settled and self._text.is_byte(self._ids[num_settled - 1]):
            num_settled -= 1
        text = self._text.decode(self._ids[:num_settled])
        if not self._text.decodes_locally:
            # U+FFFD at the end may be an incomplete character
            return self._new_part(text.rstrip("\N{REPLACEMENT CHARACTER}"))
        new = self._new_part(text)
        self._forget_before_last(num_settled)
        return new

    def finish(self) -> str:
        """Return the text that was held back, with U+FFFD for bytes that never became a character."""
        if self._text.byte_level:
            return self._bytes.decode(b"", final=True)
        return self._new_part(self._text.decode(self._ids))

    def _forget_before_last(self, num_settled: int) -> None:
        """Drop the ids before the last settled token with a text: later text depends on no other token."""
        last = num_settled - 1
        while last > 0 and (self._text.is_byte(self._ids[last]) or not self._text.piece(self._ids[last])):
            last -= 1
        if last > 0:
            del self._ids[:last]
            self._num_characters = len(self._text.decode(self._ids[: num_settled - last]))

    def _new_part(self, text: str) -> str:
        new = text[self._num_characters :]
        self._num_characters = max(self._num_characters, len(text))
        return new
