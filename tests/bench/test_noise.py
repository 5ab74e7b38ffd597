"""Warnings about a busy machine, computed from scripted clocks and runs."""

from dataclasses import replace

import pytest
from rich.console import Console

from jakiro.bench import command, noise
from jakiro.bench.noise import ProcessorClock, other_load, plain_spread, warnings
from jakiro.bench.runner import Bench, BenchSettings
from jakiro.prompts import Question
from tests.bench.scripted import ScriptedGenerator

SETTINGS = BenchSettings(methods=("autoregressive", "jakiro"), temperatures=(0.0,), nodes=(24,))
QUESTIONS = [Question(str(number), "math", ("one",)) for number in range(8)]


@pytest.fixture
def runs():
    return list(Bench(ScriptedGenerator(), SETTINGS).runs(QUESTIONS))


def test_load_of_other_programs_is_their_share_of_all_cores(monkeypatch):
    monkeypatch.setattr(noise, "num_cores", lambda: 4)
    start = ProcessorClock(wall=100.0, all_programs=1000.0, this_program=10.0)
    # In 10 s, 4 cores have 40 s; this program used 20 s and all programs 28 s
    assert other_load(start, ProcessorClock(110.0, 1028.0, 30.0)) == pytest.approx(0.2)
    assert other_load(start, ProcessorClock(110.0, 1019.0, 30.0)) == 0
    assert other_load(start, start) == 0


def test_spread_is_the_middle_half_of_plain_passes_over_their_median(runs):
    assert plain_spread(runs) == pytest.approx(0)
    assert plain_spread(runs[:4]) is None
    plain = [run for run in runs if run.lane.method == "autoregressive"]
    # Passes of 10, 20, 30, 40 and 50 ms: quartiles 20 and 40, median 30
    times = [replace(run, seconds=run.num_steps * ms / 1000) for run, ms in zip(plain, range(10, 60, 10), strict=False)]
    drafted = [replace(run, seconds=9.0) for run in runs if run.lane.method == "jakiro"]
    assert plain_spread([*times, *drafted]) == pytest.approx(2 / 3)


def test_each_sign_of_a_busy_machine_has_its_warning(runs):
    assert warnings(runs, 0.1) == []
    (loaded,) = warnings(runs, 0.25)
    assert loaded.startswith("Other programs used 25% of the processor")
    slower = [replace(run, seconds=run.seconds * (1 + (number % 3))) for number, run in enumerate(runs)]
    (spread,) = warnings(slower, 0.0)
    assert spread.startswith("Plain passes varied by ") and "measure again on an idle machine" in spread


def test_the_warning_is_printed_above_the_tables_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "other_load", lambda start, end: 0.5)
    console = Console(width=80)
    with console.capture() as capture:
        command.measure(ScriptedGenerator(), SETTINGS, QUESTIONS[:2], tmp_path, console)
    text = capture.get()
    assert text.index("Other programs used 50% of the processor") < text.index("all prompts: speed")
    assert '"other_load": 0.5' in (tmp_path / "bench.json").read_text(encoding="utf-8")
