"""Conversations to token ids: chat templates, and user text in which names of special tokens are plain characters."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from weakref import WeakKeyDictionary

from jakiro.text.arguments import check_template_arguments
from jakiro.text.messages import as_messages, check_prompt

_PRIVATE_USE = range(0xF0000, 0xFFFFE)


def encode_messages(
    tokenizer,
    messages: str | Sequence[dict] | None,
    raw_prompt: str | None = None,
    arguments: Mapping[str, object] | None = None,
) -> list[int]:
    """Return the token ids of a conversation, up to the start of the model's answer.

    A tokenizer without a chat template gets a plain dialogue. In messages the names of special tokens are plain
    characters, with a template and without: typing `<|im_end|>` does not end a turn. A raw prompt is encoded as it is,
    special tokens included.

    Args:
        tokenizer: a transformers tokenizer.
        messages: one user message, or dictionaries with "role" and "content", see `as_messages`.
        raw_prompt: a text to continue, encoded without any template.
        arguments: of the chat template, such as {"enable_thinking": False}.

    Raises:
        ValueError: the prompt is empty, a message or an argument is invalid, or the chat template rejects the
            conversation, fails, exceeds its limits or writes nothing.
    """
    if raw_prompt is not None:
        token_ids = _encode_unfinished(tokenizer, check_prompt(raw_prompt))
        if not token_ids:
            raise ValueError("The prompt is empty; give it some text.")
        return token_ids
    messages = as_messages(messages)
    arguments = check_template_arguments(tokenizer, arguments)
    if not getattr(tokenizer, "chat_template", None):
        return _encode_unfinished(tokenizer, _plain_dialogue(messages), split_special_tokens=True)
    typed = [message["content"] for message in messages] + [str(value) for value in arguments.values()]
    mask = _SpecialNameMask(tokenizer, typed)
    messages = [message | {"content": mask.hide(message["content"])} for message in messages]
    arguments = {name: mask.hide(value) if isinstance(value, str) else value for name, value in arguments.items()}
    return mask.encode(render_messages(tokenizer, messages, arguments))


def render_messages(tokenizer, messages: list[dict], arguments: Mapping[str, object] | None = None) -> str:
    """Return the text that the chat template writes for checked messages, up to the beginning of the answer.

    Raises:
        ValueError: the chat template rejects the conversation, fails, exceeds its limits or writes nothing.
    """
    return _apply_template(tokenizer, messages, arguments or {}, _needs_parts(tokenizer))


class _SpecialNameMask:
    """Replaces the names of special tokens in user text, so that they have no effect.

    Each character of such a name becomes one private-use character while the template runs, so that a template that
    trims, splits or counts treats the text as usual. Parts of the result with such characters are then encoded
    without special tokens.
    """

    def __init__(self, tokenizer, texts: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        added_tokens = getattr(tokenizer, "added_tokens_decoder", {}).values()
        names = sorted({str(token) for token in added_tokens if token.special}, key=len, reverse=True)
        # Longest first, as a tokenizer matches them; the empty alternative never matches
        self._names = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        letters = {letter for text in texts for name in self._names.findall(text) for letter in name}
        unused = (sign for sign in map(chr, _PRIVATE_USE) if not any(sign in text for text in texts))
        letters = sorted(letter for letter in letters if not letter.isspace())
        self._signs = dict(zip(letters, unused, strict=False))

    def hide(self, text: str) -> str:
        """Return the text with the characters of every special name replaced."""
        table = str.maketrans(self._signs)
        return self._names.sub(lambda match: match[0].translate(table), text)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a template's text; its own special tokens are control tokens."""
        signs = set(self._signs.values())
        table = str.maketrans({sign: letter for letter, sign in self._signs.items()})
        token_ids: list[int] = []
        # A tokenizer encodes the text between two special tokens independently of the rest
        for is_typed, parts in groupby(self._split(text), key=lambda part: not signs.isdisjoint(part)):
            part = "".join(parts).translate(table)
            token_ids += self._tokenizer(part, add_special_tokens=False, split_special_tokens=is_typed)["input_ids"]
        return token_ids

    def _split(self, text: str) -> list[str]:
        """Split a text into special names and the text between them."""
        edges = [0, *(edge for match in self._names.finditer(text) for edge in match.span()), len(text)]
        return [text[start:end] for start, end in pairwise(edges)]


def _apply_template(tokenizer, messages: list[dict], arguments: Mapping[str, object], as_parts: bool) -> str:
    """Return the text that the chat template writes.

    Args:
        as_parts: pass contents as lists of parts.
    """
    from jinja2.exceptions import TemplateError

    from jakiro.text.sandbox import TemplateLimitError, render_template

    if as_parts:
        messages = [message | {"content": [{"type": "text", "text": message["content"]}]} for message in messages]
    variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
    try:
        text = render_template(
            tokenizer.get_chat_template(), variables | tokenizer.special_tokens_map | dict(arguments)
        )
    except TemplateLimitError as error:
        raise TemplateLimitError(f"The model's chat template was stopped: {error}; choose another model.") from error
    except TemplateError as error:
        raise ValueError(f"The model's chat template refuses this conversation: {error}.") from error
    except Exception as error:
        # A template is a program from the model's files; any exception is a fault of that program
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"The model's chat template fails on this conversation ({reason}).") from error
    if not text.strip():
        raise ValueError("The model's chat template writes nothing for this conversation; choose another model.")
    return text


def _encode_unfinished(tokenizer, text: str, **options) -> list[int]:
    """Return the ids of a text to continue, with the tokens that the tokenizer prepends and without its appended ones.

    An appended end-of-text token would end the answer at once.
    """
    ids = list(tokenizer(text, **options)["input_ids"])
    bare = list(tokenizer(text, add_special_tokens=False, **options)["input_ids"])
    for start in range(len(ids) - len(bare) + 1):
        if ids[start : start + len(bare)] == bare:
            return ids[: start + len(bare)]
    return ids


def _plain_dialogue(messages: Sequence[dict]) -> str:
    lines = [f"{message['role'].capitalize()}: {message['content']}" for message in messages]
    return "\n\n".join([*lines, "Assistant:"])


QUESTION = "the question"
_PROBE = (
    ("the system prompt", {"role": "system", "content": "zqsystem"}),
    ("an earlier question", {"role": "user", "content": "zqearlier"}),
    ("an earlier answer", {"role": "assistant", "content": "zqanswer"}),
    (QUESTION, {"role": "user", "content": "zqquestion"}),
)


def find_omitted_messages(tokenizer, as_parts: bool | None = None) -> list[str]:
    """Return the names of the messages of a probe conversation that the chat template silently omits.

    Args:
        as_parts: pass contents as lists of parts; None chooses the form in which the question appears.

    Raises:
        TemplateLimitError: the template exceeds the limits on time or memory.
    """
    from jakiro.text.sandbox import TemplateLimitError

    if not getattr(tokenizer, "chat_template", None):
        return []
    as_parts = _needs_parts(tokenizer) if as_parts is None else as_parts
    # Some templates reject a system prompt, or more than one message
    for probe in (_PROBE, _PROBE[1:], _PROBE[3:]):
        try:
            text = _apply_template(tokenizer, [message for _, message in probe], {}, as_parts)
        except TemplateLimitError:
            raise
        except ValueError:
            continue
        return [name for name, message in probe if message["content"] not in text]
    return [QUESTION]


# Tokenizer → its template and whether that needs parts: a template is probed once
_part_templates: WeakKeyDictionary = WeakKeyDictionary()


def _needs_parts(tokenizer) -> bool:
    """Return whether a chat template reads contents only as lists of parts, and omits the question otherwise."""
    template, needs_parts = _part_templates.get(tokenizer, (None, False))
    if template != tokenizer.chat_template:
        needs_parts = QUESTION in find_omitted_messages(tokenizer, False)
        needs_parts = needs_parts and QUESTION not in find_omitted_messages(tokenizer, True)
        _part_templates[tokenizer] = tokenizer.chat_template, needs_parts
    return needs_parts
