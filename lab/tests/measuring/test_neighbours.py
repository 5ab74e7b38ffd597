"""Programs beside a benchmark run while it does and end with it, however it ends."""

import subprocess

import pytest

from lab.measuring import neighbours
from lab.measuring.neighbours import busy_neighbours


@pytest.fixture
def started(monkeypatch):
    found, popen = [], subprocess.Popen

    def start(*arguments, **options):
        found.append(popen(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(neighbours.subprocess, "Popen", start)
    return found


def test_neighbours_compute_until_the_block_ends(started):
    with busy_neighbours(2):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() is not None for process in started)


def test_neighbours_end_with_an_interrupted_benchmark(started):
    with pytest.raises(KeyboardInterrupt), busy_neighbours(1):
        raise KeyboardInterrupt
    assert started[0].poll() is not None
