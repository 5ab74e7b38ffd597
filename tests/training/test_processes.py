"""Training as real processes, killed and resumed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.rare
SCRIPT = Path(__file__).with_name("run_tiny.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def run(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run([*map(str, command)], env=ENVIRONMENT, capture_output=True, text=True, timeout=600)


def said(result: subprocess.CompletedProcess, what: str) -> int:
    """The number in the line "what …"."""
    assert result.returncode == 0, result.stderr[-3000:]
    return int(re.search(rf"^{what} (\d+)$", result.stdout, re.MULTILINE)[1])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "head" / "head.safetensors")


def test_a_run_killed_with_signal_nine_ends_with_the_same_weights(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert said(run(whole, "--max-steps", 8), "ended at") == 8
    killed = run(broken, "--max-steps", 8, "--die-at", 6)
    assert killed.returncode == -9
    resumed = run(broken, "--max-steps", 8, "--resume")
    assert said(resumed, "resumed at") == 5
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(broken)[name]), name
