"""One network address sends many questions at once; another address still gets a place."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.tools.load import Call
from tests.app.conftest import come_from, served
from tests.app.fake import FakeGenerator
from tests.marks import rarely
from tests.server.served import PATIENCE

QUESTION = ["Why?", 16, 0, 1, 0, 0, "jakiro", "", None]


# The second case has enough waiting calls to occupy every thread of the server
FEW, MANY = (6, 3), rarely((64, 48))


@pytest.fixture
def full_page(lengths):
    """Yield the address of a page that starts no answer; `lengths` are the queue's limits in all and per address."""
    generator = FakeGenerator()
    generator.gate.clear()
    limits = {"queue_length": lengths[0], "queue_length_address": lengths[1], "benchmarks_address": 4}
    with served(lambda: generator, **limits) as (_, address):
        yield address
        generator.gate.set()


def flood(address: str, count: int) -> tuple[list[Call], list[tuple]]:
    """Send questions at the same time; return the open calls and the first event of each."""
    with ThreadPoolExecutor(count) as pool:
        calls = list(pool.map(lambda _: Call(address, "generate", QUESTION, PATIENCE), range(count)))
        return calls, list(pool.map(lambda call: next(iter(call)), calls))


@pytest.mark.parametrize("lengths", [FEW, MANY])
def test_questions_of_one_address_leave_places_for_others(full_page, lengths, monkeypatch):
    length, length_per_address = lengths
    calls, events = flood(full_page, length + 1)
    refused = [data for event, data in events if event == "error"]
    assert len(refused) == length - length_per_address, "one is answered, `length_per_address` wait"
    waiting = rf"({length_per_address}|{length_per_address + 1}) questions from your network address are waiting"
    assert all(re.match(waiting, data["error"]) for data in refused)
    come_from("127.0.0.2", monkeypatch)
    other_calls, events = flood(full_page, 1)
    assert [event for event, _ in events] == ["generating"]
    for call in (*calls, *other_calls):
        call.close()
