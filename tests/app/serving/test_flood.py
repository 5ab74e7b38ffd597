"""One network address asks for everything at once, as many visitors; another address still finds a place."""

import re
import threading

import pytest

from app.tools.load import Call
from tests.api.served import PATIENCE
from tests.app.conftest import come_from, served
from tests.app.fake import FakeGenerator

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


class Flood:
    """Calls of one kind, all at once, open until `close`; `said` holds what each was told first."""

    def __init__(self, address, endpoint, values, count):
        self.said, self._calls = [], []
        threads = [threading.Thread(target=self._ask, args=(address, endpoint, values)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)

    def _ask(self, address, endpoint, values):
        call = Call(address, endpoint, values, PATIENCE)
        self._calls.append(call)
        self.said.append(next(iter(call)))

    def close(self):
        for call in self._calls:
            call.close()


@pytest.mark.parametrize("lengths", [FEW, MANY])
def test_questions_of_one_address_leave_places_for_others(full_page, lengths, monkeypatch):
    length, own = lengths
    flood = Flood(full_page, "generate", QUESTION, length + 1)
    refused = [data for event, data in flood.said if event == "error"]
    assert len(flood.said) == length + 1 and len(refused) == length - own, "one is answered, `own` wait"
    waiting = rf"({own}|{own + 1}) questions from your network address are waiting"
    assert all(re.match(waiting, data["error"]) for data in refused)
    come_from("127.0.0.2", monkeypatch)
    other = Flood(full_page, "generate", QUESTION, 1)
    assert [event for event, _ in other.said] == ["generating"]
    flood.close()
    other.close()
