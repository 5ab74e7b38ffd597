"""`make bench-gpu` goes on after a failure and where it stopped, and ends with one page."""

import sys

import pytest
import torch

from jakiro.generator import JakiroGenerator
from tests import bench_gpu, gpu_work
from tests.bench_gpu import Step, run_all, steps
from tests.graphs.static import COSTS, static_generator


def python(name, code):
    return Step(name, f"What {name} means.", (sys.executable, "-c", code))


def test_a_failing_and_a_hanging_command_do_not_hold_up_the_others_and_only_they_run_again(tmp_path):
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x'); print('all well')"
    wanted = [
        python("broken", "raise SystemExit('out of order')"),
        python("hanging", "import time; time.sleep(60)"),
        Step("missing", "No such program.", (str(tmp_path / "nothing"),)),
        python("good", count),
    ]
    for _ in range(2):
        results = run_all(wanted, tmp_path / "gpu", limit=1.0)
        assert [each.how for each in results] == ["failed", "took too long", "failed", "done"]
    assert (tmp_path / "count").read_text() == "x"
    page = (tmp_path / "gpu" / "summary.md").read_text()
    assert "| good | done |" in page and "all well" in page and "out of order" in page
    assert "| hanging | took too long | 1 | What hanging means. |" in page


def test_a_command_for_which_no_time_is_left_is_not_begun(tmp_path):
    results = run_all([python("first", "pass"), python("second", "pass")], tmp_path, limit=60, in_all=0.0)
    assert [each.how for each in results] == ["no time left"] * 2


@pytest.mark.parametrize("offline", [True, False])
def test_the_commands_that_find_most_come_first_and_all_names_differ(offline, monkeypatch):
    monkeypatch.setattr(bench_gpu.shutil, "which", lambda name: name)
    names = [step.name for step in steps(offline)]
    wanted = ["environment", "one-read", "7b-exact", "7b-fast", "identity", "page", "profile", "tests-graphs"]
    assert names[: len(wanted)] == wanted and len(set(names)) == len(names)
    assert names[-1] == ("training" if offline else "resume")


def test_offline_no_command_reads_a_pair_or_the_network(monkeypatch):
    for step in steps(offline=True):
        if "tests.gpu_work" in step.command:
            assert "environment" in step.command or "--offline" in step.command, step
        else:
            assert "pytest" in step.command, step


def test_without_a_gpu_it_says_so_and_runs_nothing(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["bench_gpu", "--offline"])
    monkeypatch.setattr(bench_gpu, "run_all", None)
    assert bench_gpu.main() == 1
    assert capsys.readouterr().out.startswith("There is no GPU here: torch ")


@pytest.mark.parametrize("command", ["identity", "bench", "page"])
def test_what_a_gpu_is_let_do_runs_anywhere(command, monkeypatch, capsys):
    """On the CPU nothing is captured; a pair of a tiny shape."""
    given = [command, "--offline", "--shape", "tiny", "--device", "cpu", "--tokens", "300", "--long-prompt", "40"]
    monkeypatch.setattr(sys, "argv", ["gpu_work", *given])
    monkeypatch.setattr(JakiroGenerator, "profile_of", lambda generator, method: COSTS)
    assert gpu_work.main() == 0
    said = capsys.readouterr().out
    assert {"identity": " 0 texts parted", "bench": "jakiro+prompt_lookup at 1: ", "page": "Stop: "}[command] in said


def test_on_a_known_card_the_estimate_stands_beside_what_was_measured(monkeypatch, capsys):
    monkeypatch.setattr(JakiroGenerator, "device_name", "NVIDIA H100 80GB HBM3")
    gpu_work.planned_for(static_generator())
    assert "doctor --plan estimates for H100 80 GB: " in capsys.readouterr().out


def test_a_refused_capture_fails_what_a_gpu_is_let_do(capsys):
    generator = static_generator()
    assert gpu_work.captured(generator)
    generator.slots.graphs.failure = "operation not permitted when stream is capturing"
    assert not gpu_work.captured(generator) and "REFUSED: operation not permitted" in capsys.readouterr().out
