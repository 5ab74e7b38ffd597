"""A training run that is killed and resumed, compared with one that nobody interrupts."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from jakiro.training.trainer import Trainer


class Killed(Exception):
    pass


def assert_resumed_equals_whole(trainer: Callable[[Path], Trainer], folder: Path, saves_at: int, dies_at: int) -> None:
    """`trainer` makes the same run in any folder; the broken one saves after one step and dies after a later one."""
    whole = trainer(folder / "whole")
    whole.run()
    run_until_killed(trainer(folder / "broken"), saves_at, dies_at)
    again = trainer(folder / "broken")
    again.resume()
    assert again.step == saves_at
    again.run()
    assert_equal_heads(whole, again)


def run_until_killed(broken: Trainer, saves_at: int, dies_at: int) -> None:
    """A run that saves after one step and dies after a later one, or the same."""

    def saves_and_dies(parts):
        if broken.step == saves_at:
            broken.save()
        if broken.step == dies_at:
            raise Killed

    broken._report_step = saves_and_dies
    with pytest.raises(Killed):
        broken.run()


def assert_equal_heads(expected: Trainer, found: Trainer) -> None:
    for name, tensor in expected.head.state_dict().items():
        assert torch.equal(tensor, found.head.state_dict()[name]), name
