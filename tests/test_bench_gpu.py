"""What `make bench-gpu` lets a GPU do runs on a CPU, too."""

import sys

import pytest

from jakiro.generator import JakiroGenerator
from tests import gpu_work
from tests.backends.static import COSTS


@pytest.mark.parametrize("command", ["identity", "bench", "page"])
def test_what_a_gpu_is_let_do_runs_anywhere(command, monkeypatch, capsys):
    """On the CPU nothing is captured; a pair of a tiny shape."""
    given = [command, "--offline", "--shape", "tiny", "--device", "cpu", "--tokens", "300", "--long-prompt", "40"]
    monkeypatch.setattr(sys, "argv", ["gpu_work", *given])
    monkeypatch.setattr(JakiroGenerator, "profile_of", lambda generator, method: COSTS)
    assert gpu_work.main() == 0
    said = capsys.readouterr().out
    assert {"identity": " 0 texts parted", "bench": "jakiro+prompt_lookup at 1: ", "page": "Stop: "}[command] in said
