"""Marks for cases of parametrized tests that only `make test-all` runs."""

from collections.abc import Collection, Iterable

import pytest


def rarely(*values, **options):
    """Return a case that `make test` skips.

    Args:
        values: of the test's parameters.
        options: further arguments of `pytest.param`, such as the case's id.
    """
    return pytest.param(*values, marks=pytest.mark.rare, **options)


def often(common: Collection, cases: Iterable) -> list:
    """Return all cases; `make test` skips those that are not in `common`."""
    return [case if case in common else rarely(*(case if isinstance(case, tuple) else (case,))) for case in cases]
