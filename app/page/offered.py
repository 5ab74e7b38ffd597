"""Offers of a host: drafting methods, example questions, and the page's title and style sheet."""

import json
from dataclasses import dataclass
from pathlib import Path

from app.page.web import ASSETS
from app.words import page as words
from jakiro.drafters.base import Method
from jakiro.drafters.registry import METHODS, PLAIN, Methods
from jakiro.loading import registry

QUESTIONS = ASSETS / "questions.json"


def offered_questions() -> list[str]:
    """Return questions that the default model answers and drafts well, as `app.tools.questions` chose them."""
    return [row["question"] for row in json.loads(QUESTIONS.read_text(encoding="utf-8"))]


@dataclass(frozen=True, slots=True)
class Appearance:
    """The parts of the page that a host can change.

    Attributes:
        title: name of the page.
        questions: example questions.
        style: style sheet that is loaded after the page's own.
    """

    title: str = words.TITLE
    questions: tuple[str, ...] = ()
    style: str = ""

    @classmethod
    def read(cls, title: str | None, questions: Path | None, style: Path | None) -> "Appearance":
        """Read the files that the host named; `questions` has one question a line.

        Raises:
            OSError: a file cannot be read.
            ValueError: the title or the list of questions is empty.
        """
        lines = questions.read_text(encoding="utf-8-sig").splitlines() if questions else offered_questions()
        texts = tuple(line.strip() for line in lines if line.strip())
        if not texts:
            raise ValueError(words.QUESTIONS_EMPTY.format(value=questions))
        if title is not None and not title.strip():
            raise ValueError(words.TITLE_EMPTY)
        return cls(title or words.TITLE, texts, style.read_text(encoding="utf-8-sig") if style else "")


def trained_methods(methods: Methods = METHODS) -> dict[str, float]:
    """Return the training minutes of each offered method with a head of its own, by name."""
    minutes = registry.minutes_by_kind(registry.DEFAULT_TARGET)
    with_own_head = [method for method in offered_methods(methods) if method.trains is not None]
    return {method.name: minutes[method.needs.head[0]] for method in with_own_head if method.needs.head[0] in minutes}


def offered_methods(methods: Methods = METHODS) -> list[Method]:
    """Return the drafting methods that need no head, or have a trained one for the default target."""
    kinds = {config.kind for _, config in registry.heads_of(registry.DEFAULT_TARGET).values()}
    return [
        method
        for method in methods.values()
        if method is not PLAIN and (not method.needs.head or kinds.intersection(method.needs.head))
    ]
