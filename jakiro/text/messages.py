"""Messages of a conversation: checks of role and content."""

from collections.abc import Sequence

from jakiro.config import shortened

ROLES = ("system", "user", "assistant")
_EMPTY_PROMPT = "The prompt is empty; give it some text."


def as_messages(messages: str | Sequence[dict] | None) -> list[dict]:
    """Return messages as a checked list of {"role", "content"}; a string is one user message.

    A content may be a list of parts {"type": "text", "text"}, as Gradio's chats pass it; the texts are joined.

    Raises:
        ValueError: the prompt is empty, or a message has no known role or no text.
    """
    if messages is None or isinstance(messages, str):
        return [{"role": "user", "content": check_prompt(messages or "")}]
    if not isinstance(messages, Sequence) or isinstance(messages, (bytes, bytearray)):
        raise ValueError(
            f"Messages must be a text, or a list of dictionaries with a role and a content; got {shortened(messages)}."
        )
    checked = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        content = join_text_parts(message.get("content")) if isinstance(message, dict) else None
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(
                f"A message needs a role ({', '.join(ROLES)}) and its content as text; got {shortened(message)}."
            )
        checked.append({"role": role, "content": _check_encodable(content)})
    if not checked:
        raise ValueError(_EMPTY_PROMPT)
    check_prompt(checked[-1]["content"])
    return checked


def join_text_parts(content: object) -> object:
    """Return the joined text of a list of text parts; return any other content unchanged.

    Raises:
        ValueError: a part is not a text.
    """
    if not isinstance(content, list) or not content:
        return content
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else None
            value = f"a part of type {shortened(kind)}" if kind not in ("text", None) else shortened(part)
            raise ValueError(f"Every part of a content must be a text, the model reads nothing else; got {value}.")
    return "".join(part["text"] for part in content)


def check_prompt(text: str) -> str:
    """Return a prompt that is not empty and can be encoded as UTF-8; raise ValueError otherwise."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(_EMPTY_PROMPT)
    return _check_encodable(text)


def _check_encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The text has half of a surrogate pair at character {error.start}; remove it.") from error
    return text
