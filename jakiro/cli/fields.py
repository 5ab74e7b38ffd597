"""Options of a command from the fields of its config, which say name, type, default and help: `config.setting`."""

from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from jakiro.system import comma_list


def options_from(*configs: type, without: Collection[str] = ()) -> Callable[[Callable], Callable]:
    """Adds an option for each field of these configs that has a sentence; the command gets their values by name.

    Args:
        without: fields that get none, and keep their defaults.
    """

    def decorated(command: Callable) -> Callable:
        shown = signature(command, eval_str=True)
        own = [each for each in shown.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        shared = [(config, each) for config in configs for each in fields(config) if each.metadata]
        added = [_parameter(config, each) for config, each in shared if each.name not in without]
        # What must be given comes first
        both = sorted((*added, *own), key=lambda each: each.default is not Parameter.empty)
        command.__signature__ = shown.replace(parameters=[each.replace(kind=Parameter.KEYWORD_ONLY) for each in both])
        return command

    return decorated


def filled(config: type, given: dict[str, Any], **others: Any) -> Any:
    """A config of what a command was given, and of what stands in no option."""
    known = [each for each in fields(config) if each.metadata and each.name in given]
    return config(**{each.name: _value(config, each, given) for each in known} | others)


def _parts(config: type, field: Field) -> tuple[Any, type | None, bool]:
    """A field's type, that of its parts where it is a tuple, and whether it may be None."""
    hint = get_type_hints(config)[field.name]
    kinds = [each for each in get_args(hint) if each is not NoneType] if NoneType in get_args(hint) else [hint]
    part = get_args(kinds[0])[0] if get_origin(kinds[0]) is tuple else None
    # Of numbers and words, which a comma list may mix
    part = get_args(part)[0] if get_origin(part) is UnionType else part
    return kinds[0], part, NoneType in get_args(hint)


def _parameter(config: type, field: Field) -> Parameter:
    kind, part, optional = _parts(config, field)
    about, default = field.metadata["about"], Parameter.empty if field.default is MISSING else field.default
    if part is not None:
        one = str if field.metadata["read"] else part
        kind = list[one] if field.metadata["several"] else str
        if default is not Parameter.empty:
            default = ",".join(f"{value:g}" if part is float else str(value) for value in default or ()) or None
        optional = optional or default is None
    variable = f"JAKIRO_{field.name.upper()}" if field.metadata["variable"] else None
    shown = (
        typer.Argument(help=about)
        if field.metadata["argument"]
        else typer.Option(*field.metadata["names"], help=about, envvar=variable)
    )
    annotation = Annotated[kind | None if optional else kind, shown]
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _value(config: type, field: Field, given: dict[str, Any]) -> Any:
    value, (_, part, optional) = given[field.name], _parts(config, field)
    if part is None or (value is None and optional):
        return value
    if isinstance(value, str):
        return tuple(comma_list(f"--{field.name.replace('_', '-')}", value, part, field.metadata["words"]))
    read = field.metadata["read"]
    return tuple(map(read, value or ()) if read else value or ())
