"""Fixtures of the main tests, and the mark of tests that only `make test-all` runs."""

from pathlib import Path

import pytest

from tests.conftest import *  # noqa: F403

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.rare)
