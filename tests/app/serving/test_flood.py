"""One network address asks for everything at once, as many visitors; another address still finds a place."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.tools.load import Call
from tests.app.conftest import come_from, served
from tests.app.fake import FakeGenerator
from tests.server.served import PATIENCE

QUESTION = ["Why?", 16, 0, 1, 0, 0, "jakiro", "", None]


# Waiting calls that are many enough would hold all of the server's threads
FEW, MANY = (6, 3), pytest.param((64, 48), marks=pytest.mark.rare)


@pytest.fixture
def full_page(lengths):
    """A page that begins no answer before the end of the test; `lengths` are those of its queue, in all and for one."""
    generator = FakeGenerator()
    generator.gate.clear()
    limits = {"queue_length": lengths[0], "queue_length_address": lengths[1], "benchmarks_address": 4}
    with served(lambda: generator, **limits) as (_, address):
        yield address
        generator.gate.set()


def flood(address: str, count: int) -> tuple[list[Call], list[tuple]]:
    """Questions asked all at once, which stay open, and what each is told first."""
    with ThreadPoolExecutor(count) as pool:
        calls = list(pool.map(lambda _: Call(address, "generate", QUESTION, PATIENCE), range(count)))
        return calls, list(pool.map(lambda call: next(iter(call)), calls))


@pytest.mark.parametrize("lengths", [FEW, MANY])
def test_questions_of_one_address_leave_places_for_others(full_page, lengths, monkeypatch):
    length, own = lengths
    calls, said = flood(full_page, length + 1)
    refused = [data for event, data in said if event == "error"]
    assert len(refused) == length - own, "one is answered, `own` wait"
    waiting = rf"({own}|{own + 1}) questions from your network address are waiting"
    assert all(re.match(waiting, data["error"]) for data in refused)
    come_from("127.0.0.2", monkeypatch)
    others, said = flood(full_page, 1)
    assert [event for event, _ in said] == ["generating"]
    for call in (*calls, *others):
        call.close()
