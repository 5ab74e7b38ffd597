"""Which drafting methods a visitor can choose."""

from app.words import page as words
from jakiro.drafting.base import Method
from jakiro.methods import METHODS, PLAIN
from jakiro.zoo import table as zoo


def titled_methods() -> list[tuple[str, str]]:
    """What people read of each offered method, with the minutes that its own head was trained, and its name."""
    minutes = {}
    for folder, config in zoo.heads_of(zoo.DEFAULT_TARGET).values():
        minutes.setdefault(config.kind, zoo.trained_minutes(folder))
    titled = []
    for method in offered_methods():
        known = minutes.get(method.needs.head[0]) if method.trains is not None else None
        titled.append(
            (method.title if known is None else words.TRAINED.format(title=method.title, minutes=known), method.name)
        )
    return titled


def offered_methods() -> list[Method]:
    """All that draft, but those whose heads nobody has trained for the default target."""
    kinds = {config.kind for _, config in zoo.heads_of(zoo.DEFAULT_TARGET).values()}
    return [
        method
        for method in METHODS.values()
        if method is not PLAIN and (not method.needs.head or kinds.intersection(method.needs.head))
    ]
