"""Conformance of drafting methods from outside, in less than a minute each.

    PYTHONPATH=FOLDER JAKIRO_METHODS_FROM=MODULE python -m pytest tests/drafters/outside.py

MODULE has a list METHODS, as for `--methods-from`. Slow cases need `-m "rare or not rare"`.
"""

import os

import pytest

from jakiro.drafters.registry import METHODS, methods_from
from tests.drafters.test_conformance import *  # noqa: F403

MODULES = os.environ.get("JAKIRO_METHODS_FROM", "").split(",")
if MODULES == [""]:
    pytest.exit("JAKIRO_METHODS_FROM must name a module with METHODS, such as echo with PYTHONPATH=docs.", 2)
SUBJECTS = methods_from(MODULES)
KNOWN = METHODS.with_further(SUBJECTS)
# The first chain of a drafter is checked on the host
FIRST_STEP_READS = 2
