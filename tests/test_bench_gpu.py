"""`make bench-gpu` goes on after a failure and where it stopped, and ends with one page."""

import sys

import pytest

from jakiro.generator import JakiroGenerator
from tests import gpu_work
from tests.bench_gpu import Step, run_all
from tests.graphs.static import COSTS


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


@pytest.mark.parametrize("command", ["identity", "bench", "page"])
def test_what_a_gpu_is_let_do_runs_anywhere(command, monkeypatch, capsys):
    """On the CPU nothing is captured; a pair of a tiny shape."""
    given = [command, "--offline", "--shape", "tiny", "--device", "cpu", "--tokens", "300", "--long-prompt", "40"]
    monkeypatch.setattr(sys, "argv", ["gpu_work", *given])
    monkeypatch.setattr(JakiroGenerator, "profile_of", lambda generator, method: COSTS)
    assert gpu_work.main() == 0
    said = capsys.readouterr().out
    assert {"identity": " 0 texts parted", "bench": "jakiro+prompt_lookup at 1: ", "page": "Stop: "}[command] in said
