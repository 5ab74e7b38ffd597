"""Progress of loading: reported steps, their durations, and modules that must not be imported at startup."""

import gc
import subprocess
import sys
import time

import pytest

from jakiro import progress
from jakiro.progress import CHECK, COMPILE, CONVERT, FETCH, READ, reporting_to, step, timed
from jakiro.system import one_process_at_a_time
from tests.marks import rarely


def test_steps_are_reported_when_they_start_and_when_a_nested_step_ends():
    reports = []
    with reporting_to(lambda step, share, _: reports.append((step, share))):
        with timed(), step(READ):
            with step(CONVERT), step(FETCH):
                progress.tell(FETCH, 0.5)
            progress.tell(READ, 0.25)
        with step(CHECK):
            pass
    with step(COMPILE):
        pass
    steps = [(READ, None), (CONVERT, None), (FETCH, None), (FETCH, 0.5), (CONVERT, None), (READ, None), (READ, 0.25)]
    assert reports == [*steps, (CHECK, None)]


def test_seconds_of_a_step_exclude_those_of_nested_steps(monkeypatch):
    times = iter([1.0, 3.0, 7.0, 15.0])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(times))
    with timed() as seconds, step(READ), step(CONVERT):
        pass
    assert seconds == {READ: 2.0 + 8.0, CONVERT: 4.0}


def test_objects_created_during_imports_are_exempt_from_garbage_collection():
    before = gc.get_freeze_count()
    try:
        with progress.importing():
            assert not gc.isenabled()
            objects = [[] for _ in range(1000)]
        assert gc.isenabled() and gc.get_freeze_count() >= before + len(objects)
        with pytest.raises(ImportError), progress.importing():
            raise ImportError
        assert gc.isenabled()
        gc.disable()
        with progress.importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


WORK = """
import sys, time
from pathlib import Path
from jakiro.system import one_process_at_a_time
log = Path(sys.argv[1])
with one_process_at_a_time("work"):
    with log.open("a") as file:
        file.write("in ")
        file.flush()
        time.sleep(0.2)
        file.write("out ")
"""


def test_processes_take_turns_and_a_killed_process_releases_its_lock(own_cache, tmp_path):
    log = tmp_path / "log"
    both = [subprocess.Popen([sys.executable, "-c", WORK, str(log)]) for _ in range(2)]
    assert [process.wait(600) for process in both] == [0, 0]
    assert log.read_text() == "in out in out "
    killed = subprocess.Popen([sys.executable, "-c", WORK.replace("0.2", "60"), str(log)])
    while log.read_text() == "in out in out ":
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    with one_process_at_a_time("work"):
        pass


@pytest.mark.parametrize(
    ("module", "slow"),
    [
        ("jakiro.cli.main", {"torch", "transformers"}),
        ("jakiro.trace", {"torch", "transformers"}),
        rarely("app.page.build", {"transformers.modeling_utils", "torch._dynamo", "sympy"}),
    ],
)
def test_modules_used_at_startup_do_not_import_slow_ones(module, slow):
    code = f"import sys, {module}; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert module in modules and not slow & {*modules}
