"""Deprecated import path of `jakiro.drafters`."""

from pkgutil import iter_modules

from jakiro import drafters
from jakiro.deprecated import alias_package
from jakiro.drafters.registry import METHODS, Methods, methods_from

__all__ = ["METHODS", "Methods", "methods_from"]

alias_package("jakiro.methods", "jakiro.drafters", {info.name: info.name for info in iter_modules(drafters.__path__)})
