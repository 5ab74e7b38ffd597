"""Updates are sent compressed and without delay."""

import zlib

import pytest

from app.serving.compressed import CompressedUpdates
from tests.server.served import run_apart

UPDATES = [b'data: {"index": 0}\n\n', b'data: {"index": 1}\n\n', b""]


def answered(middleware, kind: bytes, bodies: list[bytes], path="/", **headers: bytes) -> list[dict]:
    """Return the messages that the middleware sends for an answer in these parts."""
    sent = []

    async def app(scope, receive, send):
        about = [(b"content-type", kind), (b"content-length", str(sum(map(len, bodies))).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": about})
        for number, body in enumerate(bodies, 1):
            await send({"type": "http.response.body", "body": body, "more_body": number < len(bodies)})

    async def send(message):
        sent.append(message)

    request_headers = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    run_apart(middleware(app)({"type": "http", "path": path, "headers": request_headers}, None, send))
    return sent


def test_every_update_can_be_read_as_soon_as_it_was_sent():
    start, *parts = answered(
        CompressedUpdates, b"text/event-stream", UPDATES, "/gradio_api/queue/data", accept_encoding=b"gzip, br"
    )
    headers = dict(start["headers"])
    assert headers[b"content-encoding"] == b"gzip" and b"content-length" not in headers
    reader = zlib.decompressobj(wbits=31)
    assert [reader.decompress(part["body"]) for part in parts] == UPDATES
    assert reader.eof


@pytest.mark.parametrize(("path", "accepts"), [("/gradio_api/queue/data", b"br"), ("/config", b"gzip")])
def test_clients_without_gzip_and_other_paths_get_uncompressed_responses(path, accepts):
    sent = answered(CompressedUpdates, b"text/event-stream", UPDATES, path, accept_encoding=accepts)
    assert [message["body"] for message in sent[1:]] == UPDATES
