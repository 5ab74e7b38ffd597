"""Gradio without its stub files: at every import it parses each component's source to see whether they fit it.

That is a fifth of what importing Gradio takes, and of use only to those who write components. Imports no Gradio.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder

_MODULE, _FUNCTION = "gradio.component_meta", "create_or_modify_pyi"


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
def without_stub_files() -> Iterator[None]:
    """Inside this block Gradio is imported without a look at its stub files."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
