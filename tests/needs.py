"""Marks of tests with requirements that not every machine meets."""

import pytest

from jakiro.ops import kernels
from tests.support import DEVICE

compiled_functions = pytest.mark.skipif(
    DEVICE.type == "cuda" or kernels.current() is kernels.TORCH,
    reason=f"no compiled functions: {kernels.unavailable_reason() or 'the suite is on a GPU'}",
)
