"""Threads step back from cores that other programs take, and come back; counts that do not add up change nothing."""

import pytest

from jakiro import cores
from jakiro.cores import STALE, WINDOW, Cores, Look, look_at_kernel, taken_between


class Machine:
    """Counts of a machine on which this process keeps so many cores busy and others take so many."""

    def __init__(self, monkeypatch, number: int) -> None:
        self.number, self.taken, self.counted = number, 0.0, True
        self._now = Look(100.0, 0.0, 0.0, 0.0)
        self.looks = 0
        monkeypatch.setattr(cores.time, "monotonic", lambda: self._now.at)

    def go_on(self, seconds: float, busy: float = 1.0) -> None:
        idle = max(0.0, self.number - self.taken - busy)
        at, own, was_idle, total = self._now
        self._now = Look(
            at + seconds, own + busy * seconds, was_idle + idle * seconds, total + self.number * seconds * self.counted
        )

    def look(self) -> Look:
        self.looks += 1
        return self._now


@pytest.fixture
def machine(monkeypatch) -> Machine:
    return Machine(monkeypatch, number=4)


def threads_after(machine: Machine, followed: Cores, taken: float, wanted: int = 4) -> int:
    """Threads once others have taken so many cores for two windows."""
    machine.taken = taken
    for _ in range(2):
        followed.threads(wanted)
        machine.go_on(WINDOW)
    return followed.threads(wanted)


def test_a_thread_steps_back_for_each_core_that_others_take_and_comes_back(machine):
    followed = Cores(4, machine.look)
    assert [threads_after(machine, followed, taken) for taken in (0, 1, 2, 3, 4, 9, 0)] == [4, 3, 2, 1, 1, 1, 4]


def test_fewer_threads_than_cores_step_back_only_when_cores_run_out(machine):
    followed = Cores(4, machine.look)
    assert [threads_after(machine, followed, taken, wanted=2) for taken in (1, 2, 3)] == [2, 2, 1]
    assert followed.threads(1) == 1


def test_a_core_that_is_taken_in_part_moves_nobody_between_the_two_bounds(machine):
    followed = Cores(4, machine.look)
    assert [threads_after(machine, followed, taken) for taken in (0.5, 0.7, 0.5, 0.3, 0.5)] == [4, 3, 3, 4, 4]


def test_the_kernel_is_asked_once_a_window(machine):
    followed = Cores(4, machine.look)
    for _ in range(11):
        followed.threads(4)
        machine.go_on(WINDOW / 9.5)
    assert machine.looks == 2


def test_a_pause_says_nothing_about_now(machine):
    followed = Cores(4, machine.look)
    followed.threads(4)
    machine.taken = 3
    machine.go_on(STALE + 0.1)
    assert followed.threads(4) == 4
    machine.go_on(WINDOW)
    assert followed.threads(4) == 1


def test_counts_that_do_not_add_up_change_nothing(machine):
    """Sandboxes may show a file whose numbers stand still."""
    machine.counted = False
    assert threads_after(machine, Cores(4, machine.look), taken=3) == 4
    assert threads_after(machine, Cores(4, lambda: None), taken=3) == 4


def test_what_a_host_takes_is_not_another_program_s():
    first, second = Look(0.0, 0.0, 0.0, 0.0), Look(1.0, 1.2, 0.8, 2.0)
    assert taken_between(first, second, 2) == pytest.approx(0.0)
    assert taken_between(first, second._replace(idle=0.0), 2) == pytest.approx(0.8)


def test_the_kernel_s_counts_are_those_of_the_allowed_cores(tmp_path):
    path = tmp_path / "stat"
    path.write_text("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 400 5 6 7 80 90 1\ncpu1 9 9 9 9 9 9 9 9 0 0\nintr 5 0\n")
    look = look_at_kernel(frozenset({0}), path)
    second = cores.os.sysconf("SC_CLK_TCK")
    assert (look.idle, look.total) == (485 / second, 504 / second)
    assert look_at_kernel(frozenset({0, 7}), path) is None
    path.write_text("nothing of this kind")
    assert look_at_kernel(frozenset({0}), path) is None
    assert look_at_kernel(frozenset({0}), tmp_path / "missing") is None
