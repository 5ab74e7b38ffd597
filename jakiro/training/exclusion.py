"""Exclusion of evaluation prompts from a corpus: texts must not share a sequence of 13 words with one of them.

A shorter prompt is one sequence. Case and punctuation are ignored, and code is split at its operators.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from jakiro.prompts import load_questions

RUN_WORDS = 13
_WORD = re.compile(r"[^\W_]+")


def word_runs(text: str) -> set[str]:
    """Return all sequences of `RUN_WORDS` words of a text, or the whole of a shorter one, in lower case."""
    words = _WORD.findall(text.casefold())
    last = max(len(words) - RUN_WORDS, 0)
    return {" ".join(words[start : start + RUN_WORDS]) for start in range(last + 1)} - {""}


def evaluation_runs(files: Iterable[Path] = ()) -> set[str]:
    """Return the word sequences of our own prompts and of files in Spec-Bench form; all turns count.

    Raises:
        FileNotFoundError, ValueError: see `load_questions`.
    """
    questions = [question for file in (None, *files) for question in load_questions(file)]
    return set().union(*(word_runs(turn) for question in questions for turn in question.turns))
