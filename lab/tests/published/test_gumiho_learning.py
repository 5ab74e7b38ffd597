"""Gumiho's heads learn what they draft, and training goes on exactly, as with the package's own kinds."""

import lab
from tests.training.test_parallel import *  # noqa: F403

KNOWN, SUBJECTS = lab.KNOWN, ("gumiho",)
