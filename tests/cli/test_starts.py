"""Starts as `doctor --start` times them: a stand-in page that answers, fails or ends."""

import sys
import threading
from pathlib import Path

import pytest

from jakiro.cli import doctor, starts
from jakiro.cli.starts import Start, started
from jakiro.kernels.compiled import building
from jakiro.zoo.loading import LoadOptions

# Answers at once, is loading twice, then ready or failed; its log is what it was asked
PAGE = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

looks = iter(["loading", "loading"])
status = {"seconds": {"page": 1, "ready": 2, "convert": 3.25, "read": 0.5, "capture": 0}, "most_memory": 1500000000}

class Handler(BaseHTTPRequestHandler):
    def say(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path == "/status":
            self.say(json.dumps(status | {"state": next(looks, sys.argv[1])}))
        elif self.path.endswith("/7"):
            self.say('data: null\\n\\nevent: generating\\ndata: [{"text": ""}]\\n\\ndata: [{"text": "Be"}]\\n\\n')
        else:
            self.say(os.environ["JAKIRO_CACHE"])

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.say(json.dumps({"event_id": 7 if asked["data"][0] else 0}))

    def log_message(self, *_):
        pass

if sys.argv[1] == "ends":
    sys.exit("no such model")
if sys.argv[1] == "ready":
    print("A hash is damaged or half written; it is computed anew.\\nAnd a new line.", flush=True)
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def command(kind):
    return (sys.executable, "-c", PAGE, kind)


def test_a_start_is_timed_to_the_page_to_the_model_and_to_the_first_token(tmp_path):
    start = started(command("ready"), {"JAKIRO_CACHE": str(tmp_path)})
    assert 0 < start.page < start.ready and start.first_token > 0
    assert start.steps == {"convert": 3.25, "read": 0.5} and start.most_memory == 1_500_000_000
    assert start.damage == ("A hash is damaged or half written; it is computed anew.",)


@pytest.mark.parametrize(("kind", "sentence"), [("failed", "could not load its model"), ("ends", "no such model")])
def test_a_page_that_does_not_start_is_one_sentence(kind, sentence, tmp_path):
    with pytest.raises(OSError, match=sentence):
        started(command(kind), {"JAKIRO_CACHE": str(tmp_path)})


CASES = ["cold start", "warm start", "no compiler", "two at once", "two at once"]


def test_the_doctor_starts_from_empty_caches_and_a_warm_one_without_a_compiler_and_twice_at_once(monkeypatch, tmp_path):
    caches, environments, together = [], [], threading.Barrier(2, timeout=30)
    wheel = tmp_path / "model.whl"
    wheel.write_text("a model", encoding="utf-8")
    monkeypatch.setattr(starts, "wheel_path", lambda: wheel)

    def pretended(command, environment):
        assert command[1].endswith("app.py") and "--fixed-model" in command
        cache = Path(environment["JAKIRO_CACHE"])
        assert (cache / "wheels" / "model.whl").read_text(encoding="utf-8") == "a model"
        caches.append(cache)
        environments.append(environment)
        if len(caches) > 3:
            together.wait()
        return Start(3.0, 20.0 / len(caches), 0.25, {"convert": 9.0, "read": 0.01}, 10**9)

    monkeypatch.setattr(starts, "started", pretended)
    findings = list(doctor.report(LoadOptions(), True, None, None, start=True))
    assert [each.what for each in findings] == CASES and all(each.ok for each in findings)
    assert caches[0] == caches[1] and caches[3] == caches[4] and len(set(caches)) == 3
    cold, warm = findings[:2]
    assert "model ready after 20.0 s" in cold.found and "model ready after 10.0 s" in warm.found
    assert cold.found.endswith("first token 0.25 s after the question, at most 1.00 GB (convert 9.0 s)")
    assert [list(each) == ["JAKIRO_CACHE"] for each in environments] == [True, True, False, True, True]
    for name, value in environments[2].items():
        monkeypatch.setenv(name, value)
    assert not list(building.compilers())


def test_a_page_that_found_its_cache_damaged_is_no_good_start(monkeypatch):
    start = Start(3.0, 20.0, 0.25, {}, None, ("It was damaged; it is made anew.",))
    monkeypatch.setattr(starts, "started", lambda *_: start)
    for finding in starts.starts():
        assert not finding.ok and finding.found.endswith("after the question; It was damaged; it is made anew.")


def test_a_library_without_a_page_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(starts, "assets_folder", lambda: tmp_path / "assets")
    (finding,) = starts.starts()
    assert not finding.ok and "no page to start" in finding.found
