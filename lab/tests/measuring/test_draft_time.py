"""What a draft takes is measured on the default pair as it is read today."""

import sys

import pytest

from jakiro.backends.native.library import library
from lab import draft_time
from tests.support import DEVICE


@pytest.mark.skipif(DEVICE.type == "cuda" or library() is None, reason="no compiled code, or a GPU")
def test_every_method_has_a_row_for_each_number_of_levels(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["draft_time", "--rounds", "1"])
    draft_time.main()
    rows = [line.split("│")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [(method.strip(), int(levels)) for method, levels in rows] == [
        (method, levels) for method in draft_time.METHODS for levels in draft_time.LEVELS
    ]
