"""The training tests of head kinds, for Gumiho."""

import lab
from tests.training.test_parallel import *  # noqa: F403

KNOWN, SUBJECTS = lab.KNOWN, ("gumiho",)
