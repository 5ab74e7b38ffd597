"""Arguments of chat templates, such as {"enable_thinking": false}: for one prompt, and defaults for all prompts."""

import json
from collections.abc import Mapping
from inspect import signature

from jakiro.config import shortened

_NOT_AN_OBJECT = 'Template arguments are a JSON object, such as {{"enable_thinking": false}}; got {}.'


def check_template_arguments(tokenizer, arguments: Mapping[str, object] | None) -> dict[str, object]:
    """Return the arguments of a chat template after a check; for None, an empty dictionary.

    Raises:
        ValueError: this is no mapping, a name is reserved by the template or the tokenizer, or a value is no text,
            number, true, false or null.
    """
    if not isinstance(arguments or {}, Mapping):
        raise ValueError(_NOT_AN_OBJECT.format(shortened(arguments)))
    for name, value in (arguments or {}).items():
        is_reserved = name in ("messages", "conversations") or str(name).endswith("_token")
        is_reserved = is_reserved or name in signature(tokenizer.apply_chat_template).parameters
        if is_reserved or not str(name).isidentifier():
            raise ValueError(
                f"{shortened(name)} is not a valid name of a template argument: reserved, or not a Python identifier."
            )
        if not isinstance(value, str | int | float | None):
            raise ValueError(
                f"The template argument {name} must be a text, a number, true, false or null; got {shortened(value)}."
            )
    return dict(arguments or {})


def read_arguments(text: str | None) -> dict | None:
    """Parse template arguments from JSON; return None for an empty text.

    Raises:
        ValueError: the text is not valid JSON.
    """
    try:
        return json.loads(text) if text and text.strip() else None
    except ValueError:
        raise ValueError(_NOT_AN_OBJECT.format(shortened(text))) from None


def with_default_arguments(template: str, arguments: Mapping[str, object]) -> str:
    """Return a chat template that sets these arguments where a prompt does not set them."""
    defaults = (
        f"{{% set {name} = {name} if {name} is defined else {value!r} +%}}" for name, value in arguments.items()
    )
    return "".join(defaults) + template


def set_template_arguments(tokenizer, arguments: Mapping[str, object] | None) -> None:
    """Set default arguments of a tokenizer's chat template; a prompt's own arguments override them.

    Raises:
        ValueError: the arguments are invalid, see `check_template_arguments`, or there is no template.
    """
    defaults = check_template_arguments(tokenizer, arguments)
    if not defaults:
        return
    if not tokenizer.chat_template:
        raise ValueError("This model has no chat template, so --template-arguments has no effect; remove the option.")
    tokenizer.chat_template = with_default_arguments(tokenizer.chat_template, defaults)
    tokenizer.template_arguments = defaults


def merge_template_arguments(tokenizer, arguments: Mapping[str, object] | None) -> dict[str, object]:
    """Return all arguments of the chat template for a prompt: the defaults, overridden by the prompt's own."""
    if not getattr(tokenizer, "chat_template", None):
        return {}
    return {**getattr(tokenizer, "template_arguments", {}), **(arguments or {})}
