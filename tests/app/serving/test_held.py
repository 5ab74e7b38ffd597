"""One address keeps complete and incomplete requests open: others are answered, and the server still shuts down."""

import os
import resource
import signal
import socket
from urllib.parse import urlsplit

import pytest

from app.tools.load import Call
from tests.app.conftest import served_apart, status
from tests.app.serving.test_flood import QUESTION
from tests.server.served import PATIENCE

# The usual limit of open files of a process
FILES = 1024


@pytest.fixture
def page():
    """Yield (process, address) of a page in its own process with a low limit of open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))}
    with served_apart("serve_fake", 0.1, **few) as page:
        yield page


class Crowd:
    """Connections from another address of this machine; all stay open until `close`."""

    def __init__(self, address: str) -> None:
        self._port, self._open = urlsplit(address).port, []

    def hold(self, sent: str) -> None:
        line = socket.create_connection(("127.0.0.1", self._port), PATIENCE, source_address=("127.0.0.2", 0))
        line.sendall(sent.replace("\n", "\r\n").encode())
        self._open.append(line)

    def answers(self) -> list[bytes]:
        """Return the first line of each response received so far."""
        lines = []
        for line in self._open:
            line.settimeout(0.01)
            try:
                lines.append(line.recv(4096).split(b"\r\n")[0])
            except OSError:
                continue
        return lines

    def close(self) -> None:
        for line in self._open:
            line.close()


def half(number: int) -> str:
    """Return a request without its body, or without the end of its head."""
    start = "POST /gradio_api/queue/join HTTP/1.1\nHost: x\nContent-Length: 1000\n"
    return start + ("\n{" if number % 2 else "")


@pytest.mark.rare
def test_another_address_is_answered_while_one_holds_twelve_hundred_requests(page):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most[1]), most[1]))
    crowd = Crowd(page[1])
    try:
        for number in range(1200):
            crowd.hold(half(number))
        assert status(page[1])["state"] == "ready"
        call = Call(page[1], "generate", QUESTION, PATIENCE)
        events = list(call)
        assert events[-1][0] == "complete" and events[-1][1][0]["state"] == "done"
        assert sum(answer.startswith(b"HTTP/1.1 429") for answer in crowd.answers()) >= 200
    finally:
        crowd.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


@pytest.mark.rare
def test_sigterm_ends_the_page_in_seconds_with_open_connections(page):
    process, address = page
    crowd = Crowd(address)
    for number in range(40):
        crowd.hold(half(number))
    call = Call(address, "generate", [*QUESTION[:1], 2000, *QUESTION[2:]], PATIENCE)
    assert next(iter(call))[0] == "generating"
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    call.close()
    crowd.close()
