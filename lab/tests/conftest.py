"""Fixtures of the main tests, and the mark of tests that only `make test-all` runs."""

from pathlib import Path

import pytest

from tests.conftest import *  # noqa: F403
from tests.support import HEADS, tiny_head, tiny_target

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.rare)


@pytest.fixture(scope="session")
def heads():
    """Return random heads for one tiny target by their names in `HEADS`."""
    target = tiny_target()
    return {name: tiny_head(target, **options) for name, options in HEADS.items()}
