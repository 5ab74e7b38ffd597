"""Hints for clients: parts of a JSON schema that a model may fill until the token limit."""

import json
from collections.abc import Iterator

_MAX_PARTS = 5
# Keywords that bound a string
_STRING_BOUNDS = ("maxLength", "enum", "const", "pattern", "format")
_ARRAY_BOUNDS = ("maxItems", "enum", "const")


def unbounded_parts(schema: str) -> tuple[str, ...]:
    """Return one hint that lists the unbounded strings and arrays of a JSON schema; nothing if all are bounded.

    Args:
        schema: text of the schema; an invalid one has no hints, because it is refused later.
    """
    try:
        root = json.loads(schema)
    except (ValueError, RecursionError):
        return ()
    parts = list(_walk(root))
    if not parts:
        return ()
    listed = ", ".join(parts[:_MAX_PARTS]) + (", …" if len(parts) > _MAX_PARTS else "")
    return (f"The schema does not limit {listed}; a model may fill them until max_tokens. Set maxLength and maxItems.",)


def _walk(root: object) -> Iterator[str]:
    """Yield the places of unbounded parts, breadth first and without recursion, because schemas may be deep."""
    waiting = [("$", root)]
    for place, schema in waiting:
        if not isinstance(schema, dict):
            continue
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if "string" in kinds and not any(name in schema for name in _STRING_BOUNDS):
            yield place
        if "array" in kinds and not any(name in schema for name in _ARRAY_BOUNDS) and schema.get("items") is not False:
            yield place
        for name in ("properties", "$defs", "definitions"):
            if isinstance(schema.get(name), dict):
                waiting += [(f"{place}.{key}", value) for key, value in schema[name].items()]
        waiting += [(f"{place}[]", schema[name]) for name in ("items", "additionalProperties") if name in schema]
        for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if isinstance(schema.get(name), list):
                waiting += [(place, value) for value in schema[name]]
