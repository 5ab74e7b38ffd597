"""Cases of parametrized tests that only `make test-all` runs."""

from collections.abc import Collection, Iterable

import pytest


def rarely(*values):
    """Return one case that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.rare)


def often(common: Collection, cases: Iterable) -> list:
    """Return all cases; `make test` runs those in `common`."""
    return [case if case in common else rarely(*(case if isinstance(case, tuple) else (case,))) for case in cases]
