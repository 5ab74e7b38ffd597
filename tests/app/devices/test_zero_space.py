"""ZeroGPU with the package `spaces` and a stub of its scheduler: requested, lent and withdrawn GPUs."""

import base64
import http.server
import json
import os
import signal
import threading
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import pytest

from app.tools.load import Call
from app.words import page as words
from jakiro.config import SamplingParams
from jakiro.generator import JakiroGenerator
from jakiro.loading import loader
from tests.app.conftest import served_apart, status
from tests.app.devices.zero_space import SECONDS_ASKED
from tests.server.served import wait_until
from tests.support import save_pair

pytestmark = pytest.mark.rare
SECONDS = 600
# The Hub's proxy adds such a token to a visitor's request; its middle part is JSON
TOKEN = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", b'{"user":"ada"}', b"x"))


@dataclass
class Lender:
    """A stub of the service that lends GPUs to the package `spaces`.

    Attributes:
        refusal: (status, headers, body) of the next response instead of a GPU, or None.
        log: (path, parameters) of each request.
        lent: number of lent GPUs.
        unasked: the device in the page's status before the first answer.
    """

    refusal: tuple[int, dict, object] | None = None
    log: list[tuple[str, dict]] = field(default_factory=list)
    lent: int = 0
    unasked: str = ""

    def requests_of(self, path: str) -> list[dict]:
        return [parameters for logged_path, parameters in self.log if logged_path == path]

    def answer(self, path: str, parameters: dict) -> tuple[int, dict, object]:
        self.log.append((path, parameters))
        if path == "/schedule":
            refusal, self.refusal = self.refusal, None
            if refusal:
                return refusal
            self.lent += 1
            lent = {"nvidiaIndex": 0, "nvidiaUUID": "GPU-0", "allowToken": f"lent-{self.lent}"}
            # After the first answer the process of this page is still on the GPU
            return 200, {}, lent | {"idle": self.lent > 1}
        return 200, {}, ""

    def wait_until_all_is_back(self) -> None:
        wait_until(lambda: len(self.requests_of("/release")) >= self.lent, SECONDS)


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """Yield (lender, address of the page, folder of its pair) of one Space for all tests."""
    folder = save_pair(tmp_path_factory.mktemp("pair"))
    lender = Lender()

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
            status, headers, values = lender.answer(parts.path, parameters)
            body = (values if isinstance(values, str) else json.dumps(values)).encode()
            self.send_response(status)
            for header in ({"content-type": "application/json", "content-length": str(len(body))} | headers).items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_) -> None:
            pass

    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    environment = os.environ | {
        "SPACES_ZERO_GPU": "true", "SPACES_ZERO_DEVICE_API_URL": f"http://127.0.0.1:{service.server_port}",
        # On a GPU nothing is compiled either
        "HOME": str(folder), "OMP_NUM_THREADS": "1", "JAKIRO_NATIVE": "0",
    }  # fmt: skip
    with (folder / "log").open("wb") as log:
        options = {"env": environment, "stdout": log, "stderr": log}
        with served_apart("devices.zero_space", folder, **options) as (process, address):
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            lender.unasked = status(address)["model"]["device"]
            yield lender, address, folder
    service.shutdown()
    service.server_close()


def question(length: int = 24) -> list:
    return ["Why?", length, 0, 1, 0, 3, "jakiro", "", None]


def begin(address: str, endpoint: str = "generate", values: list | None = None) -> Call:
    """Return a call with the visitor's token, which the Hub's proxy adds."""
    return Call(address, endpoint, values or question(), SECONDS, headers={"X-IP-Token": TOKEN})


def ask(address: str, length: int = 24) -> tuple[str, object]:
    """Return the kind of an answer's last event, and its data or error message."""
    *_, (kind, data) = begin(address, values=question(length))
    return kind, data["error"] if kind == "error" else data[0]


def begin_long(address: str) -> Call:
    call = begin(address, values=question(200))
    assert any(kind == "generating" and data[0]["num_tokens"] > 1 for kind, data in call)
    return call


def test_the_start_is_reported_and_an_answer_borrows_a_gpu_in_the_visitors_name(space):
    lender, address, folder = space
    assert len(lender.requests_of("/startup-report")) == 1 and lender.unasked == words.ZERO_GPU
    lender.wait_until_all_is_back()
    before = len(lender.requests_of("/schedule"))
    kind, last = ask(address)
    lender.wait_until_all_is_back()
    assert kind == "complete" and last["state"] == "done"
    pair = (str(folder / "target"), str(folder / "head"))
    local = JakiroGenerator.load(loader.LoadOptions(*pair, "cpu", "float32", "exact", graphs=False))
    expected = local.run("Why?", SamplingParams(seed=3, max_new_tokens=24))
    assert last["text"] == expected.text and last["num_tokens"] == 24
    (schedule,), release = lender.requests_of("/schedule")[before:], lender.requests_of("/release")[-1]
    assert schedule["token"] == TOKEN and int(schedule["durationSeconds"]) == SECONDS_ASKED
    assert release == {"allowToken": f"lent-{lender.lent}", "fail": "false"}
    assert status(address)["model"]["device"] == "cpu", "the status of the process with the GPU"


def test_a_hang_up_returns_the_gpu_and_the_next_question_is_answered(space):
    lender, address, _ = space
    begin_long(address).close()
    lender.wait_until_all_is_back()
    assert lender.requests_of("/release")[-1]["fail"] == "false"
    assert ask(address)[0] == "complete"


def test_refusals_of_the_scheduler_are_one_sentence(space):
    lender, address, _ = space
    no_time = 429, {"X-Approve-Result": "quota-exceeded"}, {"left": 0, "wait": 11521}
    busy = 200, {"content-type": "text/event-stream"}, "event: failed"
    for refusal, sentence in ((no_time, words.ZERO_QUOTA_WAIT.format(wait="3:12:01")), (busy, words.ZERO_BUSY)):
        lender.refusal = refusal
        assert ask(address) == ("error", sentence)
        assert ask(address)[0] == "complete"


def test_a_gpu_that_is_taken_away_is_a_sentence_and_the_next_answer_gets_another(space):
    lender, address, _ = space
    call = begin_long(address)
    os.kill(int(lender.requests_of("/allow")[-1]["pid"]), signal.SIGKILL)
    kind, data = list(call)[-1]
    assert (kind, data["error"]) == ("error", words.ZERO_ABORTED)
    lender.wait_until_all_is_back()
    assert lender.requests_of("/release")[-1]["fail"] == "true"
    assert ask(address)[0] == "complete"
