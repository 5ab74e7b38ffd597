"""Comparison of a training run that is killed and resumed with an uninterrupted one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from jakiro.training.trainer import Trainer


class Killed(Exception):
    pass


def assert_resumed_equals_whole(trainer: Callable[[Path], Trainer], folder: Path, saves_at: int, dies_at: int) -> None:
    """Check that a run that saves at one step and dies at a later one equals an uninterrupted run after it is resumed.

    Args:
        trainer: makes the same run in any folder.
    """
    uninterrupted = trainer(folder / "whole")
    uninterrupted.run()
    run_until_killed(trainer(folder / "broken"), saves_at, dies_at)
    resumed = trainer(folder / "broken")
    resumed.resume()
    assert resumed.step == saves_at
    resumed.run()
    assert_equal_heads(uninterrupted, resumed)


def run_until_killed(broken: Trainer, saves_at: int, dies_at: int) -> None:
    """Run a training that saves at one step and dies at the same step or a later one."""

    def save_and_die(parts):
        if broken.step == saves_at:
            broken.save()
        if broken.step == dies_at:
            raise Killed

    broken._report_step = save_and_die
    with pytest.raises(Killed):
        broken.run()


def assert_equal_heads(expected: Trainer, actual: Trainer) -> None:
    for name, tensor in expected.head.state_dict().items():
        assert torch.equal(tensor, actual.head.state_dict()[name]), name
