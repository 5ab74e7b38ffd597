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
    broken = trainer(folder / "broken")

    def saves_and_dies(parts):
        if broken.step == saves_at:
            broken.save()
        if broken.step == dies_at:
            raise Killed

    broken._report_step = saves_and_dies
    with pytest.raises(Killed):
        broken.run()
    again = trainer(folder / "broken")
    again.resume()
    assert again.step == saves_at
    again.run()
    for name, tensor in whole.head.state_dict().items():
        assert torch.equal(tensor, again.head.state_dict()[name]), name
