"""Gradio without what the page never uses: stub files, data frames, command lines. Imports no Gradio.

At every import Gradio parses each component's source to see whether its stub file fits it, which takes a fifth of the
import and is of use only to those who write components. pandas and the command lines take a third of the rest.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder

from jakiro.imports.later import call_of, imported_later

_MODULE, _FUNCTION = "gradio.component_meta", "create_or_modify_pyi"
# What is imported when it is first used, and the functions that other modules take from there by name
_LATER = {"pandas": (), "gradio.cli": ("deploy",), "httpx._main": ("main",)}


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _MODULE else None
        if spec is not None:
            execute = spec.loader.exec_module

            def without_stubs(module) -> None:
                execute(module)
                if hasattr(module, _FUNCTION):
                    setattr(module, _FUNCTION, lambda *_: None)

            spec.loader.exec_module = without_stubs
        return spec


@contextmanager
def slim_gradio() -> Iterator[None]:
    """Around the first import of Gradio."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        with imported_later({name: {each: call_of(name, each) for each in taken} for name, taken in _LATER.items()}):
            yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def without_reloader() -> Iterator[None]:
    """Around Gradio's launch, which asks its command line's module whether that is running the page."""
    with imported_later({"gradio.cli.commands.reload": {"reload_thread": None}}):
        yield
