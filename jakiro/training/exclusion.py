"""What a head is measured on stays out of what it learns from: no run of 13 words of an evaluation prompt in a row.

A shorter prompt is one run, which only the same text has. Case and punctuation don't count, and code is split where its
signs are.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from jakiro.prompts import load_questions

RUN_WORDS = 13
_WORD = re.compile(r"[^\W_]+")


def word_runs(text: str) -> set[str]:
    """Every run of `RUN_WORDS` words in a text, or all of a shorter one, in lower case with one space between words."""
    words = _WORD.findall(text.casefold())
    last = max(len(words) - RUN_WORDS, 0)
    return {" ".join(words[start : start + RUN_WORDS]) for start in range(last + 1)} - {""}


def evaluation_runs(files: Iterable[Path] = ()) -> set[str]:
    """The runs of our own prompts and of those in these files, which are in Spec-Bench form; all turns count.

    Raises:
        FileNotFoundError, ValueError: see `load_questions`.
    """
    questions = [question for file in (None, *files) for question in load_questions(file)]
    return set().union(*(word_runs(turn) for question in questions for turn in question.turns))
