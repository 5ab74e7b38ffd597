"""Deprecated import path of `jakiro.drafters`."""

from jakiro.deprecated import alias_package
from jakiro.drafters.registry import METHODS, Methods, methods_from

__all__ = ["METHODS", "Methods", "methods_from"]

alias_package(
    "jakiro.methods",
    "jakiro.drafters",
    {
        name: name
        for name in (
            "dflash", "eagle2", "eagle3", "jakiro", "medusa", "parallelspec", "plain", "prompt_lookup", "small_model"
        )
    },
)  # fmt: skip
