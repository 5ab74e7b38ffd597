"""Limits are settings, the queue is fair and reports place and time, and stored answers are bounded."""

import itertools
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from app.page.handlers import begin
from app.serving import turns as turns_module
from app.serving.limits import Limits
from app.serving.pace import Pace
from app.serving.runs import Runs, Visitor, trace_bytes
from app.serving.turns import Turns
from app.serving.worker import AnswerRun
from app.words import page as words
from jakiro.cli.fields import build_config, options_from
from tests.app.answers import asking, events_of, start_answer
from tests.app.conftest import ready_service
from tests.app.fake import FakeGenerator
from tests.server.served import PATIENCE


def finished(service, length=8) -> AnswerRun:
    run = start_answer(service, asking(length=length))
    assert run.finished.wait(PATIENCE)
    return run


def test_an_option_beats_a_variable_and_a_variable_beats_the_default():
    limits, app = [], typer.Typer()

    @app.command()
    @options_from(Limits)
    def command(**values) -> None:
        limits.append(build_config(Limits, values))

    variables = {"JAKIRO_QUEUE_LENGTH": "9", "JAKIRO_MAX_NEW_TOKENS": "77"}
    CliRunner().invoke(app, ["--queue-length", "3"], env=variables, catch_exceptions=False)
    assert (limits[0].queue_length, limits[0].max_new_tokens) == (3, 77)
    assert limits[0].sessions == Limits().sessions
    refused = CliRunner().invoke(app, [], env={"JAKIRO_SESSIONS": "many"})
    assert refused.exit_code == 2 and "JAKIRO_SESSIONS" in refused.output and "integer" in refused.output


def test_a_limit_that_makes_no_sense_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^--queue-length must be a whole number, at least 1; got 0\.$"):
        Limits(queue_length=0)
    with pytest.raises(ValueError, match=r"^--max-request-kilobytes must be a whole number, at least 16; got 15"):
        Limits(max_request_kilobytes=15)


@pytest.mark.parametrize(
    ("text", "length", "sentence"),
    [
        ("x" * 101, 8, "Your prompt has 101 characters; this page reads 100. Shorten it by 1."),
        ("Why?", 65, "Length must be at most 64 tokens here; ask for a shorter answer."),
    ],
)
def test_a_long_prompt_or_answer_is_refused_before_the_queue(text, length, sentence):
    limits = Limits(max_prompt_characters=100, max_new_tokens=64)
    with pytest.raises(ValueError) as refusal:
        limits.check(asking(text, length))
    assert str(refusal.value) == sentence


def test_the_eleventh_answer_of_a_minute_waits_for_the_first_to_be_a_minute_old():
    seconds = [0.0]
    pace = Pace(lambda: seconds[0])
    for number in range(10):
        seconds[0] = 4.0 * number
        pace.admit({"visitor": 10, "address": 300})
    with pytest.raises(ValueError) as refusal:
        pace.admit({"visitor": 10, "address": 300})
    assert str(refusal.value) == "You requested 10 answers within a minute; the next question is possible in 24 s."
    pace.admit({"another": 10, "address": 300})
    seconds[0] = 60.5
    pace.admit({"visitor": 10, "address": 300})
    seconds[0] = 200.0
    pace.admit({"late": 1})
    assert len(pace) == 1


def turns_with(places=1, length=64) -> Turns:
    limits = Limits(queue_length=length, queue_length_address=length)
    return Turns(SimpleNamespace(device=SimpleNamespace(places=places), limits=limits, can_answer=True, refusal=None))


def test_one_address_cannot_take_the_whole_queue():
    service = ready_service(FakeGenerator(), queue_length=64, queue_length_address=48)
    turns_of_one = [service.turns.take(threading.Event(), lambda _: None, "greedy") for _ in range(49)]
    with pytest.raises(ValueError, match=r"^49 questions from your network address are waiting already\."):
        service.turns.take(threading.Event(), lambda _: None, "greedy")
    turns_of_others = [service.turns.take(threading.Event(), lambda _: None, f"other {number}") for number in range(16)]
    with pytest.raises(ValueError) as refusal:
        service.turns.take(threading.Event(), lambda _: None, "late")
    assert str(refusal.value) == words.QUEUE_FULL
    turns_of_others.pop().leave()
    turns_of_others.append(service.turns.take(threading.Event(), lambda _: None, "late"))
    for turn in (*turns_of_one, *turns_of_others):
        turn.leave()


def test_first_answers_of_all_groups_come_before_second_ones():
    turns, order = turns_with(), []
    gate = turns.take(threading.Event(), lambda _: None, "gate")
    gate.__enter__()

    def wait(turn):
        with turn:
            order.append(turn.group)

    threads = []
    for group in ("a", "a", "a", "b", "c", "b"):
        threads.append(threading.Thread(target=wait, args=(turns.take(threading.Event(), lambda _: None, group),)))
        threads[-1].start()
    gate.__exit__()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == ["a", "b", "c", "a", "b", "a"]
    assert turns.numbers()["waiting"] == turns.numbers()["running"] == 0


def test_the_mean_of_the_answers_before_is_a_running_one(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(turns_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    turns, means = turns_with(), []
    for seconds in (10.0, 20.0, 10.0):
        with turns.take(threading.Event(), lambda _: None):
            clock.now += seconds
        means.append(turns.numbers()["mean_answer_seconds"])
    assert means == [10.0, 13.0, 12.1]


def test_finished_answers_are_forgotten_by_size_and_age_but_running_ones_stay():
    seconds = [0.0]
    service = ready_service(FakeGenerator(), kept_megabytes=1, kept_minutes=1)
    runs = Runs(service.limits, lambda: seconds[0])
    answers = []
    for _ in range(40):
        answers.append(finished(service, length=16))
        runs.add(Visitor("tab"), answers[-1])
    assert 1 < len(runs) < 40
    assert sum(trace_bytes(run) for _, run, _ in runs._runs.values()) <= 2**20
    with pytest.raises(ValueError, match="no longer kept"):
        runs.traces(answers[0].id)
    assert runs.traces(answers[-1].id)["jakiro"].text
    running = AnswerRun(service, asking())
    runs.add(Visitor("tab"), running)
    seconds[0] = 61.0
    with pytest.raises(ValueError, match="no longer kept"):
        runs.traces(answers[-1].id)
    assert len(runs) == 1
    running.stop()


class Big:
    """A stub of the tensors of an answer."""


class Breaking(FakeGenerator):
    """A generator whose first answer fails after three steps, with a big object in its frame."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        # A reference to an exception keeps its frames alive
        self.errors, self.held = [error], None

    def stream(self, *arguments, **options):
        stream = super().stream(*arguments, **options)
        if self.errors:
            stream._steps = self._break(stream._steps)
        return stream

    def _break(self, steps):
        big = Big()
        self.held = weakref.ref(big)
        yield from itertools.islice(steps, 3)
        raise self.errors.pop()


@pytest.mark.parametrize(
    ("kind", "about", "said"),
    [
        (MemoryError, "CUDA out of memory. Tried to allocate 2 GiB", words.OUT_OF_MEMORY_AT),
        (RuntimeError, "CUDA out of memory. Tried to allocate 2 GiB", words.OUT_OF_MEMORY_AT),
        (KeyError, "secret", words.UNEXPECTED),
    ],
)
def test_an_error_in_the_middle_is_reported_keeps_the_steps_and_frees_place_and_memory(kind, about, said):
    generator = Breaking(kind(about))
    service = ready_service(generator)
    run = finished(service, length=64)
    tokens = 40 + len(run.traces["jakiro"].token_ids)
    assert events_of(run)[-1] == ("error", None, said.format(tokens=tokens, kind="KeyError"))
    assert len(run.traces["jakiro"].steps) == 3
    assert said is words.UNEXPECTED or generator.held() is None
    assert events_of(finished(service))[-1] == ("done", None, None)


def test_of_many_questions_in_the_same_moment_a_visitor_gets_as_many_as_may_run_at_once(monkeypatch):
    generator = FakeGenerator()
    generator.gate.clear()
    service = ready_service(generator, answers_at_once=2)
    runs, visitor, together = Runs(service.limits), Visitor("tab"), threading.Barrier(8)
    make = AnswerRun.__init__

    def make_slowly(*arguments, **options):
        time.sleep(0.02)
        make(*arguments, **options)

    monkeypatch.setattr(AnswerRun, "__init__", make_slowly)

    def ask_now(_):
        together.wait()
        try:
            begin(service, runs, visitor, asking(), replace=False)
        except ValueError as refusal:
            return str(refusal)

    with ThreadPoolExecutor(8) as threads:
        refusals = list(threads.map(ask_now, range(8)))
    generator.gate.set()
    assert list(filter(None, refusals)) == [words.TOO_MANY_AT_ONCE.format(limit=2)] * 6


def test_one_more_than_the_device_has_places_for_waits():
    turns = turns_with(places=2)
    for _ in range(2):
        turns.take(threading.Event(), lambda _: None).__enter__()
    halt, devices = threading.Event(), []
    third = turns.take(halt, lambda _: None)
    thread = threading.Thread(target=lambda: devices.append(third.__enter__()))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive() and turns.numbers()["running"] == 2
    halt.set()
    turns.wake()
    thread.join(PATIENCE)
    assert devices == [None]
