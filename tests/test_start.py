"""Tests that need no torch start without it, in about a second."""

import subprocess
import sys

from tests.faults import ROOT

LIGHT = (
    "tests/cli/test_fields.py",
    "tests/test_config.py",
    "tests/test_deprecated.py",
    "tests/test_documents.py",
    "tests/test_figures.py",
    "tests/test_lesson_notebook.py",
    "tests/test_mutants.py",
    "tests/test_progress.py",
    "tests/test_trace.py",
)
HEAVY = {"torch", "transformers", "gradio"}
COLLECT = f"""
import sys, pytest
code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[1:]])
imported = {HEAVY} & sys.modules.keys()
sys.exit(f"exit code {{code}}, imported: {{imported}}" if code or imported else 0)
"""


def test_collecting_light_tests_imports_no_heavy_package():
    run = subprocess.run([sys.executable, "-c", COLLECT, *LIGHT], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr
