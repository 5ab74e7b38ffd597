"""Random invalid requests to every endpoint: no bare server error, no hang, no folder name in a response."""

import http.client
import json
import random
import string
import sys
from urllib.parse import urlsplit

import pytest

from app.tools.load import Call, ask
from tests.app.conftest import served
from tests.app.fake import FakeGenerator
from tests.faults import ROOT
from tests.marks import rarely

SECONDS = 180
OPEN = {"answers_per_minute": 100_000, "answers_per_minute_address": 100_000, "max_request_kilobytes": 64}
FOLDERS = (str(ROOT / "app"), str(ROOT / "jakiro"), sys.prefix, "site-packages", "Traceback (most recent")
DIRECT = (
    "run/trace", "run/stop", "run/generate", "run/race", "run/ask", "run/nothing", "call/trace", "queue/join",
    "component_server", "cancel", "reset", "call/nothing",
)  # fmt: skip


@pytest.fixture(scope="module")
def address():
    with served(FakeGenerator, **OPEN) as (_, address):
        yield address


def odd_text(chance: random.Random) -> str:
    kinds = (
        lambda: "",
        lambda: " \n\t",
        lambda: "".join(chance.choices(string.printable, k=chance.randrange(200))),
        lambda: "".join(chr(chance.randrange(0x20, 0xD7FF)) for _ in range(chance.randrange(40))),
        lambda: chr(chance.randrange(0xD800, 0xE000)) + "a",
        lambda: "\x00\x1b[31m\u202e\ufeff",
        lambda: "x" * chance.choice((1000, 21_000)),
        lambda: chance.choice(("../../etc/passwd", "${1+1}", "{{value}}", "<script>", "%00", "jakiro")),
    )
    return chance.choice(kinds)()


def odd_value(chance: random.Random, depth: int = 0):
    kinds = [
        lambda: None,
        lambda: chance.random() < 0.5,
        lambda: chance.choice((0, 1, -1, 7, 2**31, -(2**63), 2**63, 10**30)),
        lambda: chance.choice((0.5, -0.0, 1e308, -1e-308, float("nan"), float("inf"), float("-inf"), 3.0)),
        lambda: odd_text(chance),
    ]
    if depth < 4:
        kinds += [
            lambda: [odd_value(chance, depth + 1) for _ in range(chance.randrange(4))],
            lambda: {odd_text(chance)[:20]: odd_value(chance, depth + 1) for _ in range(chance.randrange(4))},
            lambda: [{"role": chance.choice(("user", "assistant", odd_text(chance))), "content": odd_value(chance, 4)}],
        ]
    return chance.choice(kinds)()


def odd_arguments(chance: random.Random) -> list:
    """Return valid arguments of `generate` except for one to three, so that every check is reached."""
    values = ["Why?", 3, 0, 1, 0, 0, "jakiro", "", None]
    for _ in range(chance.randrange(1, 4)):
        values[chance.randrange(len(values))] = odd_value(chance)
    return values[: chance.choice((9, 9, 9, 9, 5, 0))]


def odd_body(chance: random.Random) -> bytes:
    """Return a request body: JSON with invalid values, of another form, very deep, or cut off; or no JSON."""
    fields = {
        "data": chance.choice((odd_arguments, odd_value))(chance), "session_hash": chance.choice(("abc", None, 5)),
        "fn_index": chance.choice((0, 1, 10**6, -1, "x", None)), "event_id": chance.choice((None, "e", 3)),
        "trigger_id": odd_value(chance), "component_id": chance.choice((0, 5, 10**6, "x")),
        "fn_name": chance.choice(("recording", "trace_text", "__class__", 5)),
    }  # fmt: skip
    for name in chance.sample(sorted(fields), k=chance.choice((0, 0, 1, 3))):
        fields[name] = odd_value(chance)
    for name in chance.sample(sorted(fields), k=chance.choice((0, 0, 1, 3))):
        del fields[name]
    kinds = (
        lambda: json.dumps(fields).encode(),
        lambda: json.dumps(fields).encode(),
        lambda: json.dumps(odd_value(chance)).encode(),
        lambda: b'{"data":' + b"[" * chance.choice((20, 40, 5000)),
        lambda: b'{"data":' + b'{"a":' * 30 + b"1" + b"}" * 30 + b"}",
        lambda: json.dumps(fields).encode()[: chance.randrange(60)],
        lambda: chance.randbytes(chance.randrange(200)),
        lambda: b"1" * chance.choice((5000, 70_000)),
    )
    return chance.choice(kinds)()


def check(text: str, request: object) -> None:
    for folder in FOLDERS:
        assert folder not in text, (folder, text[:500], request)


@pytest.mark.parametrize("count", [300, rarely(1700)])
def test_odd_requests_never_get_a_bare_error_nor_a_folder(address, count):
    chance, parts = random.Random(7), urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=SECONDS)
    codes = {}
    for _ in range(count):
        endpoint, body = chance.choice(DIRECT), odd_body(chance)
        connection.request("POST", f"/gradio_api/{endpoint}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        codes[answer.status] = codes.get(answer.status, 0) + 1
        check(text, (endpoint, body[:300]))
        if answer.status >= 500:
            assert json.loads(text)["detail"].endswith("."), (endpoint, body[:300], text[:300])
    connection.close()
    assert codes.keys() >= {200, 400, 404, 413, 422}


@pytest.mark.parametrize("count", [60, rarely(300)])
def test_odd_values_for_the_streaming_endpoints_end_in_an_answer_or_a_sentence(address, count):
    chance = random.Random(11)
    ends = {"complete": 0, "error": 0, "refused": 0}
    for number in range(count):
        values, endpoint = odd_arguments(chance), ("generate", "race")[number % 2]
        if endpoint == "race" and len(values) > 6 and values[6] == "jakiro":
            values[6] = chance.choice((None, ["jakiro"], ["jakiro", "autoregressive", "context"], ["jakiro"] * 2))
        try:
            events = list(Call(address, endpoint, values, SECONDS))
        except ValueError as refused:
            assert str(refused).startswith("The page did not take the question")
            ends["refused"] += 1
            continue
        event, data = events[-1]
        ends[event] += 1
        check(json.dumps(data), values)
        if event == "error":
            sentence = data["error"] if isinstance(data, dict) else data
            assert isinstance(sentence, str) and sentence.strip(), (values, events[-1])
    assert min(ends.values()) > count / 30, ends


def test_after_all_that_the_page_still_answers(address):
    answer = ask(address, "Why?", 5)
    assert answer.error is None and answer.update["num_tokens"] == 5
