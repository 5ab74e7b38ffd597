"""Many visitors at once: own answers for all, constant memory, free places after a hang-up, and an announced end."""

import ctypes
import gc
import os
import random
import re
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import pytest

from app.serving import server as serving
from app.serving.runs import Runs, trace_bytes
from app.tools.load import Call, ask, crowd
from app.words import page as words
from tests.app.conftest import served, status
from tests.app.fake import FakeGenerator, default_answer
from tests.server.served import PATIENCE, wait_until

OPEN = {"answers_per_minute": 10_000, "answers_per_minute_address": 10_000}
QUESTION = b"{question}"


@pytest.fixture(scope="module")
def echo():
    """Yield (Blocks, address, generator) of a page whose model repeats the question, which detects mixed-up answers."""
    generator = FakeGenerator([QUESTION, *default_answer()], pace=0.02)
    with served(lambda: generator, **OPEN, kept_megabytes=1, sessions=20) as (blocks, address):
        yield blocks, address, generator


def resident_megabytes() -> float:
    """Return the resident memory after a garbage collection and the release of the allocator's free memory."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_twenty_visitors_at_once_get_their_own_answers_and_their_places_in_the_queue(echo, monkeypatch):
    _, address, generator = echo
    # All questions arrive before the first answer, and an answer takes longer than the page's tick
    monkeypatch.setattr(generator, "pace", 0.5)
    generator.gate.clear()
    answers = []
    visitors = threading.Thread(target=lambda: answers.extend(crowd(address, 20, 20, max_new_tokens=16)))
    visitors.start()
    try:
        wait_until(lambda: status(address)["queue"]["waiting"] >= 19)
    finally:
        generator.gate.set()
    visitors.join()
    assert len(answers) == 20
    for word, answer in answers:
        assert answer.error is None
        assert re.findall(r"word\w{8}", answer.update["text"]) == [word]
        assert answer.update["state"] == "done"
    assert len({answer.update["run"] for _, answer in answers}) == 20
    messages = [answer.messages for _, answer in answers if answer.messages]
    assert len(messages) >= 18
    assert all(re.match(r"You are number \d+", sentence) for sentences in messages for sentence in sentences)


def least_growth(rounds: Sequence[float]) -> float:
    """Return the least growth of all rounds: a leak grows in every round, the allocator's arenas only in some."""
    return min(after - before for before, after in pairwise(rounds))


def visit_page(address: str, values: list, leave: str = "", runs: Runs | None = None) -> tuple[str, str | None]:
    """Ask a question as one visitor; return the text so far, and the final state or the error.

    Args:
        leave: "stop" presses Stop after the first token and requires `runs`; "close" hangs up there.
    """
    call, text, state = Call(address, "generate", values), "", None
    for event, data in call:
        if event == "error":
            call.close()
            return text, data["error"]
        text, state = data[0]["text"], data[0]["state"]
        if leave and text:
            if leave == "close":
                call.close()
                return text, "closed"
            runs.stop(call.session)
            leave = ""
    return text, state


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="memory and descriptors are counted in /proc")
@pytest.mark.rare
@pytest.mark.parametrize("count", [16, 250])
def test_visitors_who_ask_stop_and_leave_get_every_answer_and_leak_nothing(echo, count, capfd):
    blocks, address, generator = echo
    chance = random.Random(7)

    def visit(way: str) -> bool:
        word = f"word{uuid.uuid4().hex[:8]}"  # unique to this question
        values = [f"Repeat the word {word}.", 400 if way else 16, 0, 1, 0, 0, "jakiro", "", None]
        text, state = visit_page(address, values, way, blocks.runs)
        expected = {"": {"done"}, "stop": {"stopped", "done"}, "close": {"closed", "done"}}[way]
        return state in expected and re.findall(r"word\w{8}", text) == [word]

    after = []
    with ThreadPoolExecutor(20) as visitors:
        for _ in range(4):
            assert all(visitors.map(visit, chance.choices(("", "", "", "stop", "close"), k=count)))
            assert len(blocks.app.state_holder.session_data) <= 20
            # The queue forgets an answer a moment after its last message has gone out
            for store in (blocks.app.iterators, blocks._queue.event_ids_to_events, blocks.pending_diff_streams):
                wait_until(lambda store=store: not store)
            wait_until(lambda: not generator.active)
            assert visit("")
            assert sum(trace_bytes(run) for _, run, _ in blocks.runs._runs.values()) <= 2**20
            after.append((resident_megabytes(), len(os.listdir("/proc/self/fd"))))
    megabytes, descriptors = zip(*after, strict=True)
    assert least_growth(megabytes) < 12, megabytes
    assert least_growth(descriptors) < 3, descriptors
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_program_that_hangs_up_in_the_middle_frees_the_place():
    # The whole answer would take minutes
    generator = FakeGenerator(default_answer() * 40, pace=1)
    with served(lambda: generator, **OPEN) as (_, address):
        stream = Call(address, "generate", ["Why?", 400, 0, 1, 0, 0, "jakiro", "", None])
        assert next(iter(stream))[0] == "generating"
        wait_until(lambda: generator.active)
        stream.close()
        wait_until(lambda: not generator.active)


def test_a_server_that_ends_tells_its_readers():
    generator = FakeGenerator(default_answer() * 4, pace=1)
    generator.gate.clear()
    with served(lambda: generator, **OPEN) as (blocks, address), ThreadPoolExecutor(4) as readers:
        replies = [readers.submit(ask, address, "Why?", 200) for _ in range(4)]
        wait_until(lambda: status(address)["queue"]["running"] + status(address)["queue"]["waiting"] == 4)
        generator.gate.set()
        serving.end(blocks, blocks.service, blocks.runs, blocks.benchmarks)
        assert [reply.result(PATIENCE).error for reply in replies] == [words.SERVER_ENDING] * 4
