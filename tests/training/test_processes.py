"""Training in two processes of one machine, started by accelerate's launcher."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jakiro.drafters.registry import METHODS
from jakiro.heads.checkpoint import load_head
from jakiro.training.losses import VocabularySlice
from jakiro.training.schedule import TrainingOptions
from tests.training.run_tiny import trainer
from tests.training.test_commands import TRAIN, corpus_folder, succeed, target_folder  # noqa: F401
from tests.training.test_trainer import OPTIONS, checkpoint

pytestmark = pytest.mark.rare
ROOT, SCRIPT = Path(__file__).parents[2], Path(__file__).with_name("run_tiny.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
# With --cpu the launcher starts one process; the processes use the CPU because they are told to. Port 0 is a free one
LAUNCH = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", 2, "--num_machines", 1)
STEPS = 50


def launch(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, *LAUNCH, "--main_process_port", 0, *arguments]
    return subprocess.run([*map(str, command)], env=ENVIRONMENT, capture_output=True, text=True, timeout=600)


def lines(result: subprocess.CompletedProcess, pattern: str) -> list[str]:
    assert result.returncode == 0, result.stderr[-3000:]
    return sorted(re.findall(pattern, result.stdout))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a finished training in one process with two batches a step."""
    subject = trainer(tmp_path_factory.mktemp("alone"), TrainingOptions(max_steps=STEPS, accumulate=2, **OPTIONS))
    subject.run()
    return subject


@torch.no_grad()
def loss(subject, weights: dict[str, torch.Tensor]) -> float:
    """Return the loss of a head with these weights over all texts, without sampling."""
    before = {name: tensor.clone() for name, tensor in subject.objective.state_dict().items()}
    subject.objective.load_state_dict(weights)
    batch = subject.cache.batch(range(len(subject.cache)))
    total, _ = subject.objective(batch, VocabularySlice(subject.head.output_weight, None), 2)
    subject.objective.load_state_dict(before)
    return float(total)


def test_two_processes_reach_the_loss_of_one_with_the_same_batches(alone, tmp_path):
    result = launch(SCRIPT, tmp_path, "--max-steps", STEPS)
    assert lines(result, r"process (\d) ended at 50") == ["0", "1"]
    weights = load_file(checkpoint(tmp_path) / "model.safetensors")
    reached, expected = loss(alone, weights), loss(alone, alone.objective.state_dict())
    assert reached == pytest.approx(expected, abs=1e-5)
    # A run with half as many batches a step reaches another loss
    other = trainer(tmp_path / "other", TrainingOptions(max_steps=STEPS, **OPTIONS))
    other.run()
    assert loss(alone, other.objective.state_dict()) != pytest.approx(expected, abs=1e-4)


def test_killed_process_ends_the_training_with_one_sentence_and_one_process_resumes(alone, tmp_path):
    killed = launch(SCRIPT, tmp_path, "--max-steps", STEPS, "--die-at", 6)
    assert killed.returncode != 0
    sentence = (
        "Another process of this training ended in step 7; the checkpoint of step 5 is complete: run the same command "
        "with --resume."
    )
    assert killed.stderr.count(sentence) == 1, killed.stderr[-3000:]
    assert checkpoint(tmp_path).name == "step-00000005"
    resumed = trainer(tmp_path, TrainingOptions(max_steps=STEPS, accumulate=2, **OPTIONS))
    resumed.resume()
    assert resumed.step == 5
    resumed.run()
    expected = loss(alone, alone.objective.state_dict())
    assert loss(alone, resumed.objective.state_dict()) == pytest.approx(expected, abs=1e-5)


def test_every_kind_of_head_has_all_its_gradients_in_every_step(tmp_path):
    trained = lines(launch(SCRIPT, tmp_path, "--every-kind"), r"process \d trained (\S+) 3")
    kinds = sorted([method.needs.head[0] for method in METHODS.values() if method.trains is not None] + ["jakiro"])
    assert trained == sorted(2 * kinds)


def test_command_trains_in_two_processes(target_folder, corpus_folder, tmp_path):  # noqa: F811
    def arguments(name):
        folders = ("--out", tmp_path / name, "--work", tmp_path / f"{name}-work", "--target", target_folder)
        return "train", corpus_folder, *folders, *TRAIN, "--no-report"

    succeed(*arguments("one"), "--accumulate", 2)
    result = launch("-m", "jakiro", *arguments("two"), "--device", "cpu")
    assert result.returncode == 0, result.stderr[-3000:]
    one, two = (load_head(tmp_path / name) for name in ("one", "two"))
    for name, weight in one.named_parameters():
        torch.testing.assert_close(two.get_parameter(name), weight, atol=2e-3, rtol=2e-3)
