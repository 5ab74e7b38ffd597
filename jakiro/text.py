"""Token ids to bytes and text, and messages to token ids.

Everything that turns ids into something readable is here, so that a half-finished character is handled in one place.
Imports no torch.
"""

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from itertools import groupby, pairwise
from weakref import WeakKeyDictionary

from jakiro.config import shortened

ROLES = ("system", "user", "assistant")
_PRIVATE_USE = range(0xF0000, 0xFFFFE)


def _byte_of_character() -> dict[str, int]:
    """The table of byte-level BPE (GPT-2): printable bytes stand for themselves, the others sit from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_of_character()


_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_token(name: str) -> int | None:
    """The byte that a SentencePiece fallback token `<0xNN>` stands for; None for any other token."""
    found = _BYTE_TOKEN.fullmatch(name)
    return int(found[1], 16) if found else None


class TokenText:
    """Bytes, names and text of a tokenizer's ids.

    Args:
        tokenizer: a transformers tokenizer. Byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM) and SentencePiece-like
            vocabularies (`▁` for a space, `<0xNN>` for a byte) are understood.

    Attributes:
        special_tokens: by id, the names of those that `decode` leaves out.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        steps = _decoder_steps(tokenizer)
        kinds = {step.get("type") for step in steps}
        self._byte_pieces = "ByteLevel" in kinds
        self.byte_level = self._byte_pieces and kinds <= {"ByteLevel", "Fuse"}
        self.decodes_locally = _decodes_locally(steps)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self.special_tokens = {int(token_id): str(token) for token_id, token in added.items() if token.special}
        for token_id, name in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True):
            self.special_tokens.setdefault(int(token_id), str(name))
        self._pieces: dict[int, bytes] = {}

    def piece(self, token_id: int) -> bytes:
        """The bytes a token stands for: of a special token its name, of an id outside the vocabulary none."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._read_piece(token_id)
        return piece

    def is_byte(self, token_id: int) -> bool:
        """Whether a token is a SentencePiece byte, whose meaning depends on the bytes beside it."""
        name = self._tokenizer.convert_ids_to_tokens(token_id)
        return not self.byte_level and name is not None and _byte_token(name) is not None

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids without special tokens and without any cleaning of spaces."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def encode(self, text: str) -> list[int]:
        """The ids of a bare text, in which names of special tokens are plain characters."""
        return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def _read_piece(self, token_id: int) -> bytes:
        name = self.special_tokens.get(token_id)
        if name is not None:
            return name.encode()
        name = self._tokenizer.convert_ids_to_tokens(token_id)
        if name is None:
            return b""
        if self._byte_pieces:
            values = [_BYTE_OF_CHARACTER.get(character) for character in name]
            # An added token may hold characters outside the table; then it stands for its own spelling.
            return name.encode() if None in values else bytes(values)
        byte = _byte_token(name)
        return name.replace("▁", " ").encode() if byte is None else bytes([byte])


def _decoder_steps(tokenizer) -> list[dict]:
    """The settings of a fast tokenizer's decoders, in order; one empty one where it has none.

    With "ByteLevel" alone, text is the ids' bytes, joined and read as UTF-8.
    """
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    settings = json.loads(decoder.__getstate__()) if decoder is not None else {}
    return settings.get("decoders", [settings])


def _decodes_locally(steps: list[dict]) -> bool:
    """Whether a token's text depends on no others but the run of bytes it is in, and whether it is the first one.

    So it is with SentencePiece's decoders: a sign stands for a space, bytes are joined, the first space is dropped.
    """
    return all(
        step.get("type") in ("ByteFallback", "Fuse", "Metaspace")
        or (step.get("type") == "Replace" and len(step["pattern"].get("String", "")) == 1)
        or (step.get("type") == "Strip" and step["start"] <= 1 and step["stop"] == 0)
        for step in steps
    )


class IncrementalDecoder:
    """Text that grows with the ids: all pushes and `finish` joined are `decode` of all ids.

    An unfinished UTF-8 character waits for the token that completes it. Where the tokenizer decodes locally, as
    byte-level and SentencePiece vocabularies do, that costs time in proportion to the new ids; others decode everything
    again.
    """

    def __init__(self, token_text: TokenText):
        self._text = token_text
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._ids: list[int] = []
        self._num_characters = 0

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these ids complete, which may be empty."""
        ordinary = [token for token in token_ids if token not in self._text.special_tokens]
        if self._text.byte_level:
            return self._bytes.decode(b"".join(map(self._text.piece, ordinary)))
        self._ids += ordinary
        settled = len(self._ids)
        while settled and self._text.is_byte(self._ids[settled - 1]):
            settled -= 1
        text = self._text.decode(self._ids[:settled])
        if not self._text.decodes_locally:
            # A character whose bytes are not all there, as far as anybody can tell who knows the text alone
            return self._newly(text.rstrip("\N{REPLACEMENT CHARACTER}"))
        new = self._newly(text)
        self._forget_before_last(settled)
        return new

    def finish(self) -> str:
        """The text that still waits, with U+FFFD for bytes that never became a character."""
        if self._text.byte_level:
            return self._bytes.decode(b"", final=True)
        return self._newly(self._text.decode(self._ids))

    def _forget_before_last(self, settled: int) -> None:
        """Forgets what stands before the last settled token with a text: what follows reads the same after it alone."""
        last = settled - 1
        while last > 0 and (self._text.is_byte(self._ids[last]) or not self._text.piece(self._ids[last])):
            last -= 1
        if last > 0:
            del self._ids[:last]
            self._num_characters = len(self._text.decode(self._ids[: settled - last]))

    def _newly(self, text: str) -> str:
        new = text[self._num_characters :]
        self._num_characters = max(self._num_characters, len(text))
        return new


class UntilStop:
    """Text that grows and ends before the first of some texts; what may be the beginning of one waits.

    Where pushes are single tokens, it ends at the same place whatever method proposed them.

    Attributes:
        found: whether one has come; then nothing follows.
    """

    def __init__(self, stops: Sequence[str]):
        self._stops, self._waiting, self.found = tuple(stops), "", False

    def push(self, text: str) -> str:
        """What is sure to belong to the text, which may be empty."""
        waiting = self._waiting + text
        places = [place for place in map(waiting.find, self._stops) if place >= 0]
        if places:
            self.found, self._waiting = True, ""
            return waiting[: min(places)]
        held = next(
            (count for count in range(len(waiting), 0, -1) if any(s.startswith(waiting[-count:]) for s in self._stops)),
            0,
        )
        self._waiting = waiting[len(waiting) - held :]
        return waiting[: len(waiting) - held]

    def finish(self) -> str:
        """The text that still waits, which is the beginning of none."""
        waiting, self._waiting = self._waiting, ""
        return waiting


def encode_messages(
    tokenizer,
    messages: str | Sequence[dict] | None,
    raw_prompt: str | None = None,
    arguments: Mapping[str, object] | None = None,
) -> list[int]:
    """The token ids of a conversation that ends where the model's answer begins.

    Where the tokenizer has no chat template, a plain dialogue stands in for it. In messages the names of special tokens
    are plain characters, with a template and without: nobody ends a turn by typing `<|im_end|>`. A raw prompt is read
    as it is, special tokens included.

    Args:
        tokenizer: a transformers tokenizer.
        messages: one user message, or dictionaries with "role" and "content", see `as_messages`.
        raw_prompt: a bare text to continue instead, without any template.
        arguments: of the chat template, such as {"enable_thinking": False}.

    Raises:
        ValueError: nothing was asked, a message or an argument is malformed, or the chat template refuses the
            conversation, fails on it or writes nothing.
    """
    if raw_prompt is not None:
        token_ids = _open_ended(tokenizer, _checked_text(raw_prompt))
        if not token_ids:
            raise ValueError("The prompt is empty; give it some text.")
        return token_ids
    messages = as_messages(messages)
    arguments = checked_arguments(tokenizer, arguments)
    if not getattr(tokenizer, "chat_template", None):
        return _open_ended(tokenizer, _plain_dialogue(messages), split_special_tokens=True)
    typed = _Typed(tokenizer, [message["content"] for message in messages] + list(map(str, arguments.values())))
    masked = [message | {"content": typed.masked(message["content"])} for message in messages]
    told = {name: typed.masked(value) if isinstance(value, str) else value for name, value in arguments.items()}
    return typed.encode(_templated(tokenizer, masked, told, _takes_parts(tokenizer)))


class _Typed:
    """The names of special tokens in what people typed, which must mean nothing.

    To the template they are characters of private use, one for one, so that trimming, splitting and counting treat
    the rest as ever; a stretch of its text that holds them is encoded without special tokens.
    """

    def __init__(self, tokenizer, texts: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        special = {str(token) for token in getattr(tokenizer, "added_tokens_decoder", {}).values() if token.special}
        # The longest first, as a tokenizer reads them; without any, nothing is found
        self._names = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or r"(?!)")
        found = {
            letter for text in texts for name in self._names.findall(text) for letter in name if not letter.isspace()
        }
        free = (sign for sign in map(chr, _PRIVATE_USE) if not any(sign in text for text in texts))
        self._signs = dict(zip(map(ord, sorted(found)), free, strict=False))

    def masked(self, text: str) -> str:
        return self._names.sub(lambda name: name[0].translate(self._signs), text)

    def encode(self, text: str) -> list[int]:
        """Ids of a templated text. The template writes its special tokens itself, so the tokenizer adds none."""
        signs = set(self._signs.values())
        read = {ord(sign): letter for letter, sign in self._signs.items()}
        token_ids: list[int] = []
        # Stretches between the template's own special tokens, which a tokenizer reads each by itself
        for plain, parts in groupby(_split(self._names, text), key=lambda part: not signs.isdisjoint(part)):
            part = "".join(parts).translate(read)
            token_ids += self._tokenizer(part, add_special_tokens=False, split_special_tokens=plain)["input_ids"]
        return token_ids


def _split(pattern: re.Pattern, text: str) -> list[str]:
    """What matches, and what stands between; joined they are the text."""
    places = [0, *(place for found in pattern.finditer(text) for place in found.span()), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def _templated(tokenizer, messages: list[dict], arguments: Mapping[str, object], parts: bool) -> str:
    """What the chat template writes.

    Args:
        parts: whether contents are given as lists of parts.
    """
    from jinja2.exceptions import TemplateError

    if parts:
        messages = [each | {"content": [{"type": "text", "text": each["content"]}]} for each in messages]
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **arguments)
    except TemplateError as error:
        raise ValueError(f"The model's chat template refuses this conversation: {error}.") from error
    except Exception as error:
        # A template is a program of the model's authors, and any fault of it is one of theirs
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"The model's chat template fails on this conversation ({reason}).") from error
    if not text.strip():
        raise ValueError("The model's chat template writes nothing for this conversation; choose another model.")
    return text


def _open_ended(tokenizer, text: str, **options) -> list[int]:
    """Ids of a text that goes on: with what the tokenizer puts before it, without what it appends, such as the token
    that ends an answer.
    """
    ids = list(tokenizer(text, **options)["input_ids"])
    bare = list(tokenizer(text, add_special_tokens=False, **options)["input_ids"])
    for start in range(len(ids) - len(bare) + 1):
        if ids[start : start + len(bare)] == bare:
            return ids[: start + len(bare)]
    return ids


_MARKED = (
    ("the system prompt", {"role": "system", "content": "zqsystem"}),
    ("an earlier question", {"role": "user", "content": "zqearlier"}),
    ("an earlier answer", {"role": "assistant", "content": "zqanswer"}),
    ("the question", {"role": "user", "content": "zqquestion"}),
)


def left_out(tokenizer, parts: bool | None = None) -> list[str]:
    """What a tokenizer's chat template does not write of a marked conversation, though it refuses none of it.

    Args:
        parts: whether contents are given as lists of parts; None takes the form in which the question appears.
    """
    if not getattr(tokenizer, "chat_template", None):
        return []
    parts = _takes_parts(tokenizer) if parts is None else parts
    for marked in (_MARKED, _MARKED[1:], _MARKED[3:]):
        try:
            text = _templated(tokenizer, [message for _, message in marked], {}, parts)
        except ValueError:
            continue
        return [name for name, message in marked if message["content"] not in text]
    return [_MARKED[-1][0]]


# By tokenizer, its template and the form that this takes; a template is tried once
_forms: WeakKeyDictionary = WeakKeyDictionary()


def _takes_parts(tokenizer) -> bool:
    """Whether a chat template reads contents as lists of parts only: given texts, it would drop the question."""
    template, parts = _forms.get(tokenizer, (None, False))
    if template != tokenizer.chat_template:
        question = _MARKED[-1][0]
        parts = question in left_out(tokenizer, False) and question not in left_out(tokenizer, True)
        _forms[tokenizer] = tokenizer.chat_template, parts
    return parts


_NO_ARGUMENTS = 'Template arguments are a JSON object, such as {{"enable_thinking": false}}; you gave {}.'


def checked_arguments(tokenizer, arguments: Mapping[str, object] | None) -> dict[str, object]:
    """Arguments of a chat template, checked; None for none.

    Raises:
        ValueError: no such mapping, a name that is the template's or the tokenizer's own, or a value that is no text,
            number, true, false or null.
    """
    if not isinstance(arguments or {}, Mapping):
        raise ValueError(_NO_ARGUMENTS.format(shortened(arguments)))
    for name, value in (arguments or {}).items():
        own = name in ("messages", "conversations") or str(name).endswith("_token")
        if not str(name).isidentifier() or own or name in signature(tokenizer.apply_chat_template).parameters:
            raise ValueError(
                f"The chat template cannot be told {shortened(name)}: that is no name of an argument of its own."
            )
        if not isinstance(value, str | int | float | None):
            raise ValueError(
                f"The template argument {name} must be a text, a number, true, false or null; you gave "
                f"{shortened(value)}."
            )
    return dict(arguments or {})


def read_arguments(text: str | None) -> dict | None:
    """Template arguments from a JSON object as people write it; None where there is nothing.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(text) if text and text.strip() else None
    except ValueError:
        raise ValueError(_NO_ARGUMENTS.format(shortened(text))) from None


def told_template(template: str, arguments: Mapping[str, object]) -> str:
    """A chat template with defaults for these arguments, see `checked_arguments`."""
    told = (f"{{% set {name} = {name} if {name} is defined else {value!r} +%}}" for name, value in arguments.items())
    return "".join(told) + template


def tell_template(tokenizer, arguments: Mapping[str, object] | None) -> None:
    """Has a tokenizer's chat template know arguments with every prompt; those of a single prompt go before them.

    Raises:
        ValueError: they are none, see `checked_arguments`, or there is no template.
    """
    told = checked_arguments(tokenizer, arguments)
    if not told:
        return
    if not tokenizer.chat_template:
        raise ValueError("This model has no chat template that could be told --template-arguments; leave them out.")
    tokenizer.chat_template = told_template(tokenizer.chat_template, told)
    tokenizer.template_arguments = told


def all_arguments(tokenizer, arguments: Mapping[str, object] | None) -> dict[str, object]:
    """Arguments of a chat template for a prompt: those for every prompt, and its own."""
    if not getattr(tokenizer, "chat_template", None):
        return {}
    return {**getattr(tokenizer, "template_arguments", {}), **(arguments or {})}


def as_messages(messages: str | Sequence[dict] | None) -> list[dict]:
    """Messages as a checked list of {"role", "content"}; a string is one user message.

    A content may be a list of parts {"type": "text", "text"}, as Gradio's chats pass it; the texts are joined.

    Raises:
        ValueError: nothing was asked, or a message is not a known role with text.
    """
    if messages is None or isinstance(messages, str):
        return [{"role": "user", "content": _checked_text(messages or "")}]
    if not isinstance(messages, Sequence) or isinstance(messages, (bytes, bytearray)):
        raise ValueError(
            "Messages must be a text, or a list of dictionaries with a role and a content; you gave "
            f"{shortened(messages)}."
        )
    checked = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        content = joined_parts(message.get("content")) if isinstance(message, dict) else None
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(
                f"A message needs a role ({', '.join(ROLES)}) and its content as text; you gave {shortened(message)}."
            )
        checked.append({"role": role, "content": _encodable(content)})
    if not checked:
        raise ValueError("The prompt is empty; give it some text.")
    _checked_text(checked[-1]["content"])
    return checked


def joined_parts(content: object) -> object:
    """A content's text, of one that is a list of text parts; everything else as it is.

    Raises:
        ValueError: a part is no text.
    """
    if not isinstance(content, list) or not content:
        return content
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else None
            named = f"one of type {shortened(kind)}" if kind != "text" and kind is not None else shortened(part)
            raise ValueError(f"A content's parts must be texts, which is all that the model reads; you gave {named}.")
    return "".join(part["text"] for part in content)


def _checked_text(text: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError("The prompt is empty; give it some text.")
    return _encodable(text)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The text holds half of a surrogate pair at character {error.start}; remove it.") from error
    return text


def _plain_dialogue(messages: Sequence[dict]) -> str:
    lines = [f"{message['role'].capitalize()}: {message['content']}" for message in messages]
    return "\n\n".join([*lines, "Assistant:"])
