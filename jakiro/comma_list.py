"""Comma lists as they are given to options of the command line."""

from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def comma_list(option: str, text: str, kind: Callable[[str], Value], words: tuple[str, ...] = ()) -> list[Value | str]:
    """The values of a comma list.

    Args:
        option: what the reader knows the list by.
        kind: makes a value of a part; whole numbers (`int`) may stand as a range "0-9".
        words: parts that stand as they are.

    Raises:
        ValueError: a part is none of these, or there is none.
    """
    values: list[Value | str] = []
    for part in (part.strip() for part in text.split(",")):
        first, dash, last = part.partition("-")
        try:
            if part in words:
                values.append(part)
            elif kind is int and dash and first:
                values.extend(range(int(first), int(last) + 1))
            elif part:
                values.append(kind(part))
        except ValueError as error:
            wanted = {int: "whole numbers", float: "numbers"}.get(kind, kind.__name__)
            raise ValueError(f"{option} takes a comma list of {wanted}; “{part}” is none.") from error
    if not values:
        raise ValueError(f"{option} takes a comma list; you gave {text!r}.")
    return values
