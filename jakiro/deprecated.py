"""Import paths of earlier versions, which work for one more release."""

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module


def alias_package(old: str, new: str, modules: Mapping[str, str]) -> None:
    """Make the modules of a package importable by their old names, and warn.

    Call it in the `__init__.py` of the old package.

    Args:
        old: name of the old package.
        new: name of the package that replaces it.
        modules: new module names by old module names.
    """
    # Level 3: the import statement of the caller of the old package
    warnings.warn(f"{old} is deprecated and will be removed; import from {new}.", DeprecationWarning, stacklevel=3)
    for old_name, new_name in modules.items():
        module = import_module(f"{new}.{new_name}")
        sys.modules[f"{old}.{old_name}"] = module
        setattr(sys.modules[old], old_name, module)
