"""Marks of tests that need what not every machine has."""

import pytest

from jakiro.ops.compiled.library import library, why_not
from tests.support import DEVICE

compiled_functions = pytest.mark.skipif(
    DEVICE.type == "cuda" or library() is None, reason=f"no compiled functions: {why_not() or 'the suite is on a GPU'}"
)
