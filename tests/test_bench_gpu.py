"""`make bench-gpu` goes on after a failure and where it stopped, and ends with one page."""

import sys

from tests.bench_gpu import Step, run_all, steps


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


def test_the_commands_stand_in_the_order_of_their_worth_and_each_is_known():
    names = [step.name for step in steps()]
    assert names[:3] == ["tests", "identical", "7b-exact"] and names[-2:] == ["corpus", "train"]
    assert len(set(names)) == len(names)
