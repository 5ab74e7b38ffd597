"""Training as real processes: killed and resumed, and two under `accelerate launch`; all of it takes a minute."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jakiro.methods import METHODS
from tests.training.run_tiny import trainer

pytestmark = pytest.mark.rare
SCRIPT = Path(__file__).with_name("run_tiny.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def run(*arguments, launcher=(), **environment) -> subprocess.CompletedProcess:
    command = [sys.executable, *launcher, SCRIPT, *arguments]
    environment = ENVIRONMENT | environment
    return subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=600)


def launched(*arguments) -> subprocess.CompletedProcess:
    # With --cpu accelerate starts one process only; the script says itself that it stays on processors.
    launcher = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", 2, "--num_machines", 1)
    # Port 0 lets the launcher find a free one.
    return run(*arguments, launcher=(*launcher, "--main_process_port", 0))


def said(result: subprocess.CompletedProcess, what: str) -> list[tuple[str, str]]:
    """(process, number) of every line "process … what …"."""
    assert result.returncode == 0, result.stderr[-3000:]
    return sorted(re.findall(rf"process (\d) {what} (\d+)\n", result.stdout))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "head" / "head.safetensors")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """One process, two batches a step, to the end."""
    folder = tmp_path_factory.mktemp("alone")
    trainer(folder, max_steps=8, accumulate=2, num_validation=4).run()
    return folder


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    """Two processes, a batch of each a step; then a run of so many minutes, and one for every kind of head."""
    folder = tmp_path_factory.mktemp("together")
    return folder, launched(folder, "--max-steps", 8, "--time-budget", 0.02, "--every-kind")


def test_a_run_killed_with_signal_nine_ends_with_the_same_weights(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert said(run(whole, "--max-steps", 8, "--accumulate", 2), "ended at") == [("0", "8")]
    killed = run(broken, "--max-steps", 8, "--accumulate", 2, "--die-at", 6)
    assert killed.returncode == -9
    resumed = run(broken, "--max-steps", 8, "--accumulate", 2, "--resume")
    assert said(resumed, "resumed at") == [("0", "5")]
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(broken)[name]), name


def test_two_processes_learn_what_one_learns_and_end_together(alone, together):
    folder, result = together
    assert said(result, "ended at") == [("0", "8"), ("1", "8")]
    for name, tensor in weights(alone).items():
        torch.testing.assert_close(tensor, weights(folder)[name], atol=2e-3, rtol=2e-3, msg=name)
    (first, steps), (second, others) = said(result, "ended its time at")
    assert (first, second) == ("0", "1") and steps == others and int(steps) > 1


def test_every_kind_of_head_learns_in_two_processes(together):
    """A weight without a gradient stops the next step of all: a router over one expert has none."""
    _, result = together
    trained = {name for name, method in METHODS.items() if method.trains is not None} | {"decoupled"}
    assert result.returncode == 0, result.stderr[-3000:]
    for process in "01":
        assert set(re.findall(rf"process {process} trained (.+)\n", result.stdout)) == trained


def test_precision_and_accumulation_are_not_those_of_the_users_accelerate_config(alone, tmp_path):
    settings = {"MIXED_PRECISION": "bf16", "GRADIENT_ACCUMULATION_STEPS": "4", "DYNAMO_BACKEND": "eager"}
    environment = {f"ACCELERATE_{name}": value for name, value in settings.items()}
    assert said(run(tmp_path, "--max-steps", 8, "--accumulate", 2, **environment), "ended at") == [("0", "8")]
    # Rounded to bfloat16, weights would be a hundred times as far apart; another process may sum in another order
    for name, tensor in weights(alone).items():
        torch.testing.assert_close(tensor, weights(tmp_path)[name], atol=1e-4, rtol=1e-3, msg=name)
