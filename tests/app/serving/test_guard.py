"""The guard in front of the page: closed paths, size limits, headers of every response, logins, `/status`."""

import json
import re
import urllib.error
import urllib.request

import pytest

from app.serving.guard import Guard, counted_address
from app.serving.server import frame_ancestors, read_logins
from app.tools.load import ask
from app.words import page as words
from tests.app.conftest import come_from, served
from tests.app.fake import FakeGenerator
from tests.faults import ROOT
from tests.server.served import PATIENCE, run_apart, wait_until


@pytest.fixture(scope="module")
def guarded():
    """Yield the address of a page with one login."""
    with served(FakeGenerator, logins=[("ada", "engine")], max_request_kilobytes=16) as (_, address):
        yield address


def fetch(address, path, body=None, **headers):
    request = urllib.request.Request(address.rstrip("/") + path, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd", "/gradio_api/file=app.py", "/gradio_api/file/README.md", "/file=app.py",
        "/gradio_api/proxy=http://localhost/", "/gradio_api/upload", "/gradio_api/stream/a/b/1/playlist-file",
        "/gradio_api/vibe-code", "/gradio_api/dev/reload", "/monitoring", "/docs", "/nothing", "/static/../app.py",
    ],
)  # fmt: skip
def test_addresses_that_the_page_does_not_need_do_not_exist(guarded, path):
    status, headers, text = fetch(guarded, path)
    assert (status, json.loads(text)) == (404, {"detail": words.NOT_SERVED})
    assert headers["x-content-type-options"] == "nosniff"


def test_status_says_state_queue_limits_and_versions_without_a_login_and_nothing_private(guarded):
    status, headers, text = fetch(guarded, "/status")
    values = json.loads(text)
    assert status == 200 and headers["content-type"].startswith("application/json")
    assert values["seconds"].keys() >= {"page", "ready"} and values["most_memory"] > 0
    assert values["state"] in ("ready", "loading")
    assert set(values["queue"]) == {"running", "waiting", "mean_answer_seconds", "places"}
    assert values["limits"]["max_request_kilobytes"] == 16
    assert values["versions"]["gradio"] == "6.31.0"
    assert set(values) == {"state", "start", "chip", "model", "queue", "limits", "versions", "seconds", "most_memory"}


def test_without_a_login_nothing_but_the_login_page_answers(guarded):
    for path in ("/config", "/gradio_api/info", "/gradio_api/queue/data?session_hash=x"):
        assert fetch(guarded, path)[0] == 401, path
    body = json.dumps({"data": ["Why?"]}).encode()
    for path in ("/gradio_api/call/generate", "/gradio_api/run/trace", "/gradio_api/queue/join"):
        assert fetch(guarded, path, body, **{"Content-Type": "application/json"})[0] in (401, 422), path


def test_a_measurement_of_a_page_with_logins_fails_with_the_reason(guarded):
    with pytest.raises(ValueError, match="did not take the question: Not authenticated"):
        ask(guarded, "Why?")


def test_with_a_login_programs_are_answered(guarded, connect):
    client = connect(guarded, auth=("ada", "engine"))
    assert client.predict("Why?", 8, api_name="/generate")["num_tokens"] == 8


def test_a_large_request_is_not_read(guarded):
    status, _, text = fetch(guarded, "/gradio_api/call/generate", b"x" * 17_000)
    assert (status, json.loads(text)["detail"]) == (413, words.REQUEST_TOO_LARGE.format(limit=16))


def test_every_answer_forbids_foreign_scripts_pictures_and_frames(guarded):
    _, headers, _ = fetch(guarded, "/")
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == "'self'"
    assert not re.search(r"https?:|\*", headers["content-security-policy"])
    assert headers["referrer-policy"] == "same-origin"


def test_a_space_may_frame_the_page_and_others_when_they_are_named(monkeypatch):
    monkeypatch.setenv("SPACE_ID", "ada/jakiro")
    assert frame_ancestors().startswith("'self' https://")
    monkeypatch.setenv("JAKIRO_FRAME_ANCESTORS", "https://moodle.example.org")
    assert frame_ancestors() == "https://moodle.example.org"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
def test_requests_are_checked_in_the_encoding_in_which_the_server_reads_them(guarded, encoding):
    for data in ("[" * 40 + "]" * 40, '["\\ud800"]'):
        body = f'{{"data": {data}, "session_hash": "x"}}'.encode(encoding)
        status, _, text = fetch(guarded, "/gradio_api/call/generate", body, **{"Content-Type": "application/json"})
        assert (status, json.loads(text)["detail"]) == (400, words.REQUEST_NOT_READ)


LIMIT = 60


@pytest.fixture
def counted(request, monkeypatch):
    """Yield a page with a limit of 60 requests a minute per address; on a Space if the parameter is True."""
    # On a slow machine a minute could pass during the test
    monkeypatch.setattr("app.serving.pace.MINUTE", 6000)
    monkeypatch.delenv("SPACE_ID", raising=False)
    if getattr(request, "param", False):
        monkeypatch.setenv("SPACE_ID", "ada/jakiro")
    with served(FakeGenerator, requests_per_minute_address=LIMIT) as (_, address):
        # The launch has sent requests from the usual address
        come_from("127.0.0.3", monkeypatch)
        yield address


def test_requests_of_all_kinds_are_counted_by_address(counted):
    body = json.dumps({"data": [], "session_hash": "chosen by the client"}).encode()
    paths = ("/gradio_api/component_server", "/gradio_api/call/trace", "/gradio_api/queue/join")
    responses = [fetch(counted, path, body, **{"Content-Type": "application/json"}) for path in 21 * paths]
    assert 429 not in [status for status, _, _ in responses[:60]]
    for status, _, text in responses[60:]:
        assert status == 429 and re.fullmatch(r"Too many requests .* try again in \d+ s\.", json.loads(text)["error"])
    assert fetch(counted, "/status")[0] == 200


def test_a_page_counts_as_ten_requests_and_a_file_as_a_tenth(counted):
    assert [fetch(counted, "/nothing")[0] for _ in range(20)] == [404] * 20
    assert [fetch(counted, "/")[0] for _ in range(5)] == [200] * 4 + [429]
    assert fetch(counted, "/nothing")[0] == 429
    files = [fetch(counted, "/static/img/logo_nosize.svg")[0] for _ in range(100)]
    assert 429 not in files


UNKNOWN_COMPONENT = '{"data": [], "component_id": 9999, "session_hash": "a", "fn_name": "x"}'


@pytest.mark.parametrize(
    ("path", "sent", "status", "sentence"),
    [
        ("queue/join", '{"data": [], "fn_index": 999, "session_hash": "a"}', 404, words.NOT_SERVED),
        ("queue/join", "{}", 422, words.REQUEST_NOT_READ),
        ("queue/join", "{", 422, words.REQUEST_NOT_READ),
        ("queue/join", '{"data": [%s]}' % ("9" * 5000), 400, words.REQUEST_NOT_READ),
        ("queue/join", '{"data": 5, "session_hash": NaN}', 400, words.REQUEST_NOT_READ),
        ("queue/join", '{"data": 5, "session_hash": -Infinity}', 400, words.REQUEST_NOT_READ),
        ("call/generate", '{"data": [1e999], "session_hash": []}', 400, words.REQUEST_NOT_READ),
        ("call/nothing", '{"data": []}', 404, words.NOT_SERVED),
        ("call/v2/nothing", '{"question": "x"}', 404, words.NOT_SERVED),
        ("call/v2/generate", '{"question": "x", "bogus": 1}', 400, words.REQUEST_NOT_READ),
        ("component_server", UNKNOWN_COMPONENT, 404, words.NOT_SERVED),
        ("queue/data", None, 422, words.REQUEST_NOT_READ),
        ("heartbeat/x", None, 404, words.NOT_SERVED),
    ],
)  # fmt: skip
def test_refusals_of_gradio_are_sentences_with_a_fitting_status(fake_address, path, sent, status, sentence):
    body = sent.encode() if sent is not None else None
    code, _, text = fetch(fake_address, f"/gradio_api/{path}", body, **{"Content-Type": "application/json"})
    assert (code, json.loads(text)["detail"]) == (status, sentence)


@pytest.mark.parametrize(
    ("path", "message"),
    [("call/generate/0123abc", f"event: error\ndata: {json.dumps(words.ANSWER_UNKNOWN)}\n\n"),
     ("queue/data?session_hash=x", words.ANSWER_UNKNOWN)],
)  # fmt: skip
def test_a_stream_without_a_question_ends_with_a_sentence_and_without_a_traceback(fake_address, path, message, capfd):
    capfd.readouterr()
    status, _, text = fetch(fake_address, f"/gradio_api/{path}")  # urllib refuses a body that is cut off
    assert status == 200 and message in text
    assert capfd.readouterr().err == ""


def answered(app, guard=None, times: int = 1, **scope) -> list[dict]:
    """Send requests through the guard of an app; return the messages of the last response."""
    guard = guard or Guard(app, dict, {}, 1000, 1000, 10, "'self'")
    scope = {"type": "http", "path": "/", "method": "GET", "headers": [], "client": ("127.0.0.1", 5)} | scope

    async def ask_all():
        for _ in range(times):
            sent = []

            async def send(message, sent=sent):
                sent.append(message)

            await guard(scope, None, send)
        return sent

    return run_apart(ask_all())


@pytest.mark.parametrize("has_started", [True, False])
def test_a_failed_response_is_complete_and_its_traceback_is_written_once_a_minute(has_started, capfd):
    async def fail(scope, receive, send):
        if has_started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("of a kind")

    sent = answered(fail, times=50)
    assert sent[-1]["type"] == "http.response.body" and not sent[-1].get("more_body")
    assert [message["status"] for message in sent[:1]] == [200 if has_started else 500]
    assert capfd.readouterr().err.count("RuntimeError: of a kind") == 1


@pytest.mark.parametrize(
    ("configured", "client", "believed"),
    [(False, ("203.0.113.7", 5), False), (False, ("203.0.113.7", 0), False), (True, ("203.0.113.7", 5), False),
     (True, ("203.0.113.7", 0), True)],
)  # fmt: skip
def test_forwarded_headers_are_accepted_from_a_configured_proxy_only(configured, client, believed):
    seen = []

    async def page(scope, receive, send):
        seen.extend(name for name, _ in scope["headers"])

    about = [(b"x-forwarded-host", b"evil"), (b"x-gradio-server", b"evil"), (b"x-forwarded-proto", b"https")]
    guard = Guard(page, dict, {}, 1000, 1000, 10, "'self'", behind_proxy=configured)
    answered(page, guard, headers=[*about, (b"host", b"here")], client=client)
    assert seen == ([name for name, _ in about] if believed else []) + [b"host"]


def test_logins_come_from_the_line_or_from_a_file(tmp_path):
    file = tmp_path / "logins"
    file.write_text("ada:one:two\n\ncharles:engine\n", encoding="utf-8")
    assert read_logins(None) is None
    assert read_logins("ada:engine") == [("ada", "engine")]
    assert read_logins(str(file)) == [("ada", "one:two"), ("charles", "engine")]
    file.write_text("ada:one\ncharles:engine\n", encoding="utf-8-sig")
    assert read_logins(str(file)) == [("ada", "one"), ("charles", "engine")]
    with pytest.raises(ValueError, match="the file “nowhere” does not exist"):
        read_logins("nowhere")
    file.write_text("ada\n", encoding="utf-8")
    with pytest.raises(ValueError, match="needs a name, a colon and a password"):
        read_logins(str(file))


def ask_for(address: str, forwarded: str) -> int:
    """Return the status of a request with an X-Forwarded-For header."""
    headers = {"Content-Type": "application/json", "X-Forwarded-For": forwarded}
    return fetch(address, "/gradio_api/call/trace", b'{"data": [], "session_hash": "chosen"}', **headers)[0]


@pytest.mark.parametrize("counted", [True], indirect=True)
def test_on_a_space_the_address_that_its_proxy_saw_is_counted_and_none_that_the_visitor_wrote(counted, monkeypatch):
    """The middleware of uvicorn reads the header; the loopback address takes the role of the Space's proxy."""
    come_from("127.0.0.1", monkeypatch)
    statuses = [ask_for(counted, f"198.51.100.{number}, 203.0.113.7, 10.16.3.80") for number in range(LIMIT + 1)]
    assert 429 not in statuses[:LIMIT] and statuses[LIMIT] == 429
    assert ask_for(counted, "203.0.113.7, 203.0.113.8, 10.16.3.80") != 429, "another visitor of the same proxy"
    assert ask_for(counted, "203.0.113.9, 203.0.113.7") == 429, "the same visitor by another way"


def test_outside_of_spaces_the_forwarded_address_is_ignored(counted):
    statuses = [ask_for(counted, f"203.0.113.{number}") for number in range(LIMIT + 1)]
    assert 429 not in statuses[:LIMIT] and statuses[LIMIT] == 429


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_an_ipv6_connection_is_counted_by_its_network(address, network):
    assert counted_address(address) == network


def test_status_is_an_error_after_a_failed_load_so_that_health_checks_fail():
    def fail():
        raise ValueError("no such model")

    with served(fail) as (blocks, address):
        wait_until(lambda: blocks.service.settled)
        status, _, text = fetch(address, "/status")
        assert (status, json.loads(text)["state"]) == (503, "failed")
    assert "getresponse().status != 200" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
