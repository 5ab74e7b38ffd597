"""The conformance tests of drafting methods, for the lab's methods."""

import lab
from tests.drafters.test_conformance import *  # noqa: F403

KNOWN, SUBJECTS = lab.KNOWN, lab.METHODS
FIRST_STEP_READS = 2
READ_ON_HOST = {"mcsd_improved", "mcsd_replacing", "gsd", "s2d"}
