"""Every module of the lab can be imported, so its commands stay up to date with the library."""

import importlib
import pkgutil

import pytest

import lab

MODULES = [module.name for module in pkgutil.walk_packages(lab.__path__, "lab.") if ".tests" not in module.name]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_lab_imports(name):
    assert importlib.import_module(name)
