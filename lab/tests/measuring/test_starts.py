"""Starts as `lab.measuring.starts` times them: a stand-in page that answers, fails or ends."""

import sys

import pytest

from lab.measuring.starts import started

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
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def command(kind):
    return (sys.executable, "-c", PAGE, kind)


def test_a_start_is_timed_to_the_page_to_the_model_and_to_the_first_token(tmp_path):
    start = started(command("ready"), {"JAKIRO_CACHE": str(tmp_path)})
    assert 0 < start.page < start.ready and start.first_token > 0
    assert start.steps == {"convert": 3.25, "read": 0.5} and start.most_memory == 1_500_000_000


@pytest.mark.parametrize(("kind", "sentence"), [("failed", "could not load its model"), ("ends", "no such model")])
def test_a_page_that_does_not_start_is_one_sentence(kind, sentence, tmp_path):
    with pytest.raises(OSError, match=sentence):
        started(command(kind), {"JAKIRO_CACHE": str(tmp_path)})
