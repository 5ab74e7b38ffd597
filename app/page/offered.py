"""Which drafting methods a visitor can choose."""

from jakiro.drafting.base import Method
from jakiro.methods import METHODS, PLAIN
from jakiro.zoo import table as zoo


def offered_methods() -> list[Method]:
    """All that draft, but those whose heads nobody has trained for the default target."""
    kinds = {config.kind for _, config in zoo.heads_of(zoo.DEFAULT_TARGET).values()}
    return [
        method
        for method in METHODS.values()
        if method is not PLAIN and (not method.needs.head or kinds.intersection(method.needs.head))
    ]
