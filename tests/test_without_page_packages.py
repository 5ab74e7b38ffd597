"""Tests of a machine that has torch and transformers, but not the packages of the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MISSING = ("gradio", "gradio_client", "plotly", "ray", "spaces", "playwright", "pydantic", "platformdirs")
BLOCK = f"""
import sys

class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {MISSING}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(tmp_path, *command):
    """Run a command with these packages missing."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.rare
def test_engine_tests_are_collected_without_page_packages(tmp_path):
    (folders,) = re.findall(r"^ENGINE_TESTS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    done = run(tmp_path, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *folders.split())
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.rare
def test_gpu_measurements_run_without_page_packages(tmp_path):
    done = run(tmp_path, "-m", "tests.gpu.work", "environment")
    assert done.returncode == 0 and "torch" in done.stdout, done.stderr[-3000:]
