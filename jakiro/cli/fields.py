"""Command-line options from dataclass fields: `config.setting` stores the name, type, default and help of each."""

from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from jakiro.system import comma_list


def options_from(*configs: type, without: Collection[str] = ()) -> Callable[[Callable], Callable]:
    """Return a decorator that adds one option per field with help text; the command receives the values by name.

    Args:
        configs: dataclasses with fields declared by `setting`.
        without: names of fields that get no option and keep their defaults.
    """

    def decorate(command: Callable) -> Callable:
        declared = signature(command, eval_str=True)
        parameters = [
            parameter for parameter in declared.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD
        ]
        for config in configs:
            declared_fields = [field for field in fields(config) if field.metadata and field.name not in without]
            parameters += [_parameter(config, field) for field in declared_fields]
        # A parameter without a default must precede all others
        parameters.sort(key=lambda parameter: parameter.default is not Parameter.empty)
        keyword_only = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
        command.__signature__ = declared.replace(parameters=keyword_only)
        return command

    return decorate


def build_config(config: type, values: dict[str, Any], **others: Any) -> Any:
    """Create a config from the values of a command's options.

    Args:
        config: a dataclass passed to `options_from`.
        values: option values by field name; names of other configs are ignored.
        others: values of fields that have no option.
    """
    with_option = [field for field in fields(config) if field.metadata and field.name in values]
    return config(**{field.name: _value(config, field, values[field.name]) for field in with_option} | others)


def _type_of(config: type, field: Field) -> tuple[Any, type | None, bool]:
    """Return the type of a field.

    Returns:
        The type without None; the type of the items, if it is a tuple (of a union such as `int | str`, its first
        member); and whether None is allowed.
    """
    hint = get_type_hints(config)[field.name]
    optional = NoneType in get_args(hint)
    kind = next(member for member in get_args(hint) if member is not NoneType) if optional else hint
    item = get_args(kind)[0] if get_origin(kind) is tuple else None
    if get_origin(item) is UnionType:
        item = get_args(item)[0]
    return kind, item, optional


def _parameter(config: type, field: Field) -> Parameter:
    kind, item, optional = _type_of(config, field)
    metadata = field.metadata
    default = Parameter.empty if field.default is MISSING else field.default
    if item is not None:
        option_item = str if metadata["read"] else item
        kind = list[option_item] if metadata["several"] else str
        if default is not Parameter.empty:
            default = ",".join(f"{value:g}" if item is float else str(value) for value in default or ()) or None
        optional = optional or default is None
    variable = f"JAKIRO_{field.name.upper()}" if metadata["variable"] else None
    if metadata["argument"]:
        option = typer.Argument(help=metadata["about"])
    else:
        metavar = "<str>" if metadata["several"] else None
        option = typer.Option(*metadata["names"], help=metadata["about"], envvar=variable, metavar=metavar)
    annotation = Annotated[kind | None if optional else kind, option]
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _value(config: type, field: Field, value: Any) -> Any:
    """Return the field's value for an option's value: comma lists and repeated options become tuples."""
    _, item, optional = _type_of(config, field)
    if item is None or (value is None and optional):
        return value
    if isinstance(value, str):
        return tuple(comma_list(f"--{field.name.replace('_', '-')}", value, item, field.metadata["words"]))
    read = field.metadata["read"]
    return tuple(map(read, value or ()) if read else value or ())
