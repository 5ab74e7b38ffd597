"""The model serves one answer at a time, in order, and is free soon after Stop or a closed tab."""

import json
import threading
import time
from unittest.mock import Mock

import pytest

from app.devices.local import LocalDevice
from app.devices.zero import ZeroDevice
from app.page import handlers
from app.serving.limits import Limits
from app.serving.runs import Runs, Visitor
from app.serving.worker import RETURN_SECONDS, AnswerRun, ModelService
from app.words import page as words
from jakiro import progress
from tests.app.answers import asking, events_of, start_answer
from tests.app.conftest import ready_service, settled_service
from tests.app.fake import FakeGenerator, default_answer
from tests.server.served import PATIENCE, wait_until

LONG = default_answer() * 20  # a race of 256 tokens takes 15 s at pace 1: one that ends sooner was stopped


RACE = asking(length=256, methods=("autoregressive", "jakiro"))


def test_a_race_gives_headers_before_steps_and_equal_texts():
    run = start_answer(ready_service(FakeGenerator()), RACE)
    events = events_of(run)
    first_step = next(i for i, event in enumerate(events) if event[0] == "step")
    assert [event[:2] for event in events[:first_step]] == [("header", "autoregressive"), ("header", "jakiro")]
    assert events[-1] == ("done", None, None)
    ends = [event[1:] for event in events if event[0] == "end"]
    assert ends == [("autoregressive", "eos"), ("jakiro", "eos")]
    assert run.traces["autoregressive"].token_ids == run.traces["jakiro"].token_ids


def test_an_answer_for_which_there_is_no_thread_gives_its_place_back(monkeypatch):
    service = ready_service(FakeGenerator())
    run = AnswerRun(service, asking())
    monkeypatch.setattr(run._thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    with pytest.raises(RuntimeError, match="new thread"):
        run.start()
    assert run.finished.is_set() and service.turns.numbers()["waiting"] == 0
    assert events_of(start_answer(service, asking()))[-1] == ("done", None, None)


def test_the_device_is_measured_before_the_first_answer_and_asking_meanwhile_waits():
    may_measure, measured = threading.Event(), []

    class Measuring(FakeGenerator):
        @property
        def profile(self):
            measured.append(may_measure.wait(PATIENCE))

    service = ModelService(LocalDevice(Measuring))
    service.start()
    wait_until(lambda: service.chip()["text"] == words.CHIP_MEASURING)
    assert service.chip()["state"] == "loading"
    run = start_answer(service, RACE)
    assert run.events.get(timeout=PATIENCE) == ("wait", None, words.WAITING_FOR_MODEL)
    may_measure.set()
    assert events_of(run)[-1][0] == "done"
    assert measured == [True]
    assert service.chip()["title"].startswith(words.CHIP_READY_TITLE)
    assert service.seconds["ready"] > 0


def test_every_step_of_a_start_is_a_line_on_the_chip():
    said = []

    def load():
        for name in progress.STEPS:
            with progress.step(name):
                said.append(service.chip()["text"])
        return FakeGenerator()

    service = ModelService(LocalDevice(load))
    service.start()
    wait_until(lambda: service.settled)
    assert said == [words.CHIP_STEPS[name] for name in progress.STEPS]
    assert len(set(said)) == len(said)


def test_a_model_that_cannot_be_loaded_is_an_error_in_words():
    service = settled_service(Mock(side_effect=FileNotFoundError("No folder “x”.")))
    assert service.chip()["state"] == "failed"
    assert events_of(start_answer(service, RACE)) == [("error", None, "The model could not be loaded: No folder “x”.")]


VALUES = {
    "question": "Why?", "temperature": 0, "top_p": 1, "top_k": 0, "seed": 0, "length": 256, "tree": words.FIXED,
    "candidates": 23, "levels": 5, "method": "jakiro", "alongside": True, "further_lanes": [],
    "numerics": words.EXACT, "system_prompt": "", "history": [],
}  # fmt: skip


def ticks_of(updates) -> dict[int, list]:
    """Return the events of all updates by their number."""
    return {int(number): json.loads(tick) for update in updates for number, tick in update["ticks"].items()}


def assert_whole(ticks: dict[int, list], run: AnswerRun, end: str) -> None:
    """Check that the ticks contain all events of an answer in order, and its end."""
    assert sorted(ticks) == list(range(len(ticks)))
    events = [event for number in sorted(ticks) for event in ticks[number]]
    for method, trace in run.traces.items():
        steps = [payload for kind, lane, payload in events if (kind, lane) == ("step", method)]
        assert "".join(step["text"] for step in steps) == trace.text
        assert ["end", method, end] in events
    assert events[-1] == ["done", None, None]


@pytest.mark.parametrize(("metered", "patience"), [(False, "RETURN_SECONDS"), (True, "METERED_SECONDS")])
def test_an_answer_without_a_reader_ends_after_a_while_and_sooner_if_it_uses_a_quota(metered, patience, monkeypatch):
    monkeypatch.setattr(f"app.serving.worker.{patience}", 0.5)
    generator, runs = FakeGenerator(LONG, pace=4.0), Runs(Limits())
    service = ready_service(generator)
    service.device.metered = metered
    updates = handlers.generate(service, runs, Visitor("tab"), VALUES)
    run = runs.find(next(updates)["run"])
    updates.close()
    assert run.finished.wait(PATIENCE) and run.traces["jakiro"].end_reason == "stopped"
    assert runs.find(run.id) is run, "a reloaded page gets the text so far"
    assert ZeroDevice.metered and not LocalDevice.metered


def test_an_answer_without_a_reader_gives_its_place_to_a_waiting_visitor(monkeypatch):
    for name in ("PATIENCE_SECONDS", "METERED_SECONDS"):
        monkeypatch.setattr(f"app.serving.worker.{name}", 0.3)
    generator, runs = FakeGenerator(LONG, pace=4.0), Runs(Limits())
    service = ready_service(generator)
    updates = handlers.generate(service, runs, Visitor("tab"), VALUES | {"run_id": "a" * 32})
    next(updates)
    updates.close()
    time.sleep(0.6)
    assert generator.active, "the queue is empty and no quota is used, so it continues"
    updates_of_other = list(handlers.generate(service, runs, Visitor("another"), VALUES | {"length": 4}))
    assert "done" in next(iter(updates_of_other[-1]["ticks"].values()))
    assert "stopped" in {trace.end_reason for trace in runs.traces("a" * 32).values()}


def test_a_returning_visitor_gets_the_whole_answer_in_order_and_stops_it():
    generator, runs = FakeGenerator(LONG, pace=2.0), Runs(Limits())
    service, run_id = ready_service(generator), "a" * 32
    updates = handlers.generate(service, runs, Visitor("tab"), VALUES | {"run_id": run_id})
    assert next(updates)["run"] == run_id
    next(updates)
    handlers.forget(service, runs, run_id)
    back = handlers.resume(service, runs, Visitor("new"), run_id)
    first = next(back)
    updates.close()  # the server detects the end of the old connection late
    ticks = ticks_of([first, *(next(back) for _ in range(4))])
    assert list(ticks) == list(range(len(ticks)))
    assert runs.stop("new") == 1
    ticks |= ticks_of(back)
    assert_whole(ticks, runs.find(run_id), "stopped")
    assert_whole(ticks_of(handlers.resume(service, runs, Visitor("later"), run_id)), runs.find(run_id), "stopped")


def test_updates_overlap_in_order_and_the_last_one_repeats_nothing():
    service, runs = ready_service(FakeGenerator(pace=0.2)), Runs(Limits())
    updates = list(handlers.generate(service, runs, Visitor("tab"), VALUES))
    assert all(len(update["ticks"]) <= handlers.KEPT_TICKS for update in updates)
    numbers = [max(map(int, update["ticks"])) for update in updates]
    assert numbers == list(range(len(updates)))
    assert len(updates[-1]["ticks"]) == 1
    sent = {int(number): tick for update in updates for number, tick in update["ticks"].items()}
    run_id = updates[0]["run"]
    assert handlers.missed_ticks(runs, run_id, 0) == [sent[number] for number in numbers]
    assert handlers.missed_ticks(runs, run_id, 3) == [sent[number] for number in numbers[3:]]
    for run, first in (("another", 0), (run_id, -1), (run_id, "0"), (None, 0), (run_id, None)):
        assert handlers.missed_ticks(runs, run, first) is None
    assert_whole(ticks_of(updates), runs.find(run_id), "eos")


def test_an_answer_put_aside_continues_without_a_reader_and_is_complete_after_a_return():
    generator, runs, run_id = FakeGenerator(LONG), Runs(Limits()), "a" * 32
    service = ready_service(generator)
    generator.gate.clear()
    updates = handlers.generate(service, runs, Visitor("tab"), VALUES | {"run_id": run_id})
    first, run = next(updates), runs.find(run_id)
    assert handlers.put_aside(runs, run_id) and handlers.put_aside(runs, run_id), "a second call returns the same"
    ticks = ticks_of([first, *updates])  # ends by itself
    assert not run.finished.is_set() and ticks[max(ticks)][-1][0] != "done"
    generator.gate.set()
    run._left -= RETURN_SECONDS + 1
    assert run.seconds_alone == 0
    ticks |= ticks_of(handlers.resume(service, runs, Visitor("tab"), run_id))
    assert_whole(ticks, run, "length")
    assert not handlers.put_aside(runs, "b" * 32) and not handlers.put_aside(runs, run_id), "it has no reader"


def test_a_session_that_left_is_forgotten():
    clock = [1000.0]
    service, runs = ready_service(FakeGenerator()), Runs(Limits(), lambda: clock[0])
    *_, last = handlers.generate(service, runs, Visitor("tab"), VALUES | {"length": 8, "alongside": False})
    run_id = last["run"]
    runs.leave("another")
    clock[0] += RETURN_SECONDS + 1
    assert runs.traces(run_id)
    runs.leave("tab")
    clock[0] += RETURN_SECONDS - 1
    assert runs.traces(run_id)
    clock[0] += 2
    with pytest.raises(ValueError, match="no longer kept"):
        runs.traces(run_id)
