"""Modules that are imported later, if ever: stand-ins take their place while other packages are imported.

A stand-in becomes the real module as soon as something is asked of it that it cannot answer.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType


class _Later(ModuleType):
    """Holds what it was given; every other attribute is the real module's, imported then."""

    def __getattr__(self, name: str):
        # The import system asks for these; the real module would answer alike only once it is imported
        if name in ("__path__", "__file__"):
            raise AttributeError(name)
        return getattr(_real(self.__name__), name)


def call_of(module: str, name: str) -> Callable:
    """A function that imports a module when it is called, and then calls the module's function or class `name`."""

    def call(*arguments, **named):
        return getattr(_real(module), name)(*arguments, **named)

    return call


@contextmanager
def imported_later(given: Mapping[str, Mapping[str, object]]) -> Iterator[None]:
    """Inside this block these modules are stand-ins, unless they are imported already.

    Args:
        given: by module, those of its attributes that are asked for during the block and need not be the real ones.
    """
    stand_ins = []
    for name, attributes in given.items():
        if name not in sys.modules:
            stand_in = sys.modules[name] = _Later(name)
            vars(stand_in).update(attributes)
            stand_ins.append(stand_in)
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).setdefault(child, stand_in)
    try:
        yield
    finally:
        for stand_in in stand_ins:
            _remove(stand_in)


def _real(name: str) -> ModuleType:
    """The module itself, imported without its stand-in and those of modules within it."""
    for other, module in list(sys.modules.items()):
        if isinstance(module, _Later) and f"{other}.".startswith(f"{name}."):
            _remove(module)
    return importlib.import_module(name)


def _remove(stand_in: ModuleType) -> None:
    parent, _, child = stand_in.__name__.rpartition(".")
    holders = [(sys.modules, stand_in.__name__)]
    if parent in sys.modules:
        holders.append((vars(sys.modules[parent]), child))
    for holder, name in holders:
        if holder.get(name) is stand_in:
            del holder[name]
