"""Every module of the lab imports: its commands follow the library as it changes."""

import importlib
import pkgutil

import pytest

import lab

MODULES = [module.name for module in pkgutil.walk_packages(lab.__path__, "lab.") if ".tests" not in module.name]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_lab_imports(name):
    assert importlib.import_module(name)
