"""Which drafting methods a visitor can choose, and which questions are offered."""

import json

from app.page.web import ASSETS
from jakiro.drafters.base import Method
from jakiro.drafters.registry import METHODS, PLAIN, Methods
from jakiro.loading import registry

QUESTIONS = ASSETS / "questions.json"


def offered_questions() -> list[str]:
    """Questions that the default model answers and drafts well, as `app.tools.questions` chose them."""
    return [row["question"] for row in json.loads(QUESTIONS.read_text(encoding="utf-8"))]


def trained_methods(known: Methods = METHODS) -> dict[str, float]:
    """By name of each offered method with a head of its own, the minutes that this was trained."""
    minutes = registry.minutes_by_kind(registry.DEFAULT_TARGET)
    own = [method for method in offered_methods(known) if method.trains is not None]
    return {method.name: minutes[method.needs.head[0]] for method in own if method.needs.head[0] in minutes}


def offered_methods(known: Methods = METHODS) -> list[Method]:
    """All that draft, but those whose heads nobody has trained for the default target."""
    kinds = {config.kind for _, config in registry.heads_of(registry.DEFAULT_TARGET).values()}
    return [
        method
        for method in known.values()
        if method is not PLAIN and (not method.needs.head or kinds.intersection(method.needs.head))
    ]
