"""Errors and names for visitors: the library's own sentence without the server's folders, or a general one."""

import re

from app.words import page as words
from jakiro.config import cut_short
from jakiro.system import is_out_of_memory

_LONGEST = 400
# A path of two parts or more, in POSIX or Windows form; its last part is kept, as it names the file
_PATHS = re.compile(r"(?<![\w:/.])(?:~|[A-Za-z]:)?(?:[/\\][^\s/\\:'\"“”,;()]+)+[/\\]([^\s/\\:'\"“”,;()]+)[/\\]?")


def sentence_of(error: Exception) -> str:
    """Return the sentence that a visitor reads about an error raised while answering."""
    if is_out_of_memory(error):
        return str(error) if isinstance(error, ValueError) else words.OUT_OF_MEMORY
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
        return for_visitors(str(error))
    return words.UNEXPECTED.format(kind=type(error).__name__)


def for_visitors(text: str) -> str:
    """Return a sentence that may leave the server: no folders, no broken characters, and at most 400 characters."""
    return cut_short(without_paths(text[: 4 * _LONGEST]).encode("utf-8", "replace").decode(), _LONGEST)


def short_name(name: str) -> str:
    """Return the last part of a model's path on the server; names of other models stay as they are."""
    is_path = re.match(r"[/\\~.]|[A-Za-z]:[/\\]", name)
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1] if is_path else name


def without_paths(text: str) -> str:
    """Return the text with every path shortened to its last part."""
    return _PATHS.sub(r"…/\1", text)
