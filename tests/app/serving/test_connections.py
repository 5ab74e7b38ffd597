"""Connections without a request or with an endless request head are closed; plain uvicorn keeps them for ever."""

import asyncio
import socket

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.serving import connections
from tests.server.served import PATIENCE, run_apart

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # the default dependencies of uvicorn include h11 only
    HttpToolsProtocol = H11Protocol

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def app(scope, receive, send):
    """Answer after 0.7 s if the request has a body."""
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    await asyncio.sleep(0.7 if body + message["body"] else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(params=[H11Protocol, HttpToolsProtocol])
def run_client(request, monkeypatch):
    """Return a function that runs `talk(connect)` against a server of this protocol; heads may take 0.1 s."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(connections, "MOST_SILENT", 4)

    async def serve(talk):
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical", http=request.param))
        server.config.load()
        connections.hang_up_on_silence(server)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            running = asyncio.create_task(server.serve([listening]))
            while not server.started:
                await asyncio.sleep(0.01)
            try:
                return await asyncio.wait_for(talk(lambda: asyncio.open_connection(*listening.getsockname())), PATIENCE)
            finally:
                server.should_exit = True
                await running

    return lambda talk: run_apart(serve(talk))


async def rest(reader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("begin", [b"", b"G", HEAD, HEAD + b"X-A: 1\r\n"])
def test_a_connection_without_a_complete_head_is_closed(run_client, begin):
    async def talk(connect):
        reader, writer = await connect()
        writer.write(begin)
        return await rest(reader)

    assert run_client(talk) == b""


def test_a_head_that_grows_byte_by_byte_is_closed_too(run_client):
    async def talk(connect):
        reader, writer = await connect()
        writer.write(HEAD + b"X-A: ")
        ended = asyncio.create_task(rest(reader))
        while not ended.done():
            writer.write(b"a")
            await asyncio.sleep(0.02)
        return await ended

    assert run_client(talk) == b""


def test_a_request_is_answered_however_long_it_takes_and_so_is_the_next_one(run_client, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)

    async def talk(connect):
        reader, writer = await connect()
        for body in (b"", b"slow"):
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
            await asyncio.sleep(0.7 if body else 0)
            writer.write(body)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        # An incomplete head after an answer is closed too
        writer.write(HEAD)
        return await rest(reader)

    assert run_client(talk) == b""


def test_the_oldest_of_too_many_silent_connections_is_closed(run_client, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 60)

    async def talk(connect):
        held = [await connect() for _ in range(7)]
        assert [await rest(reader) for reader, _ in held[:3]] == [b""] * 3
        for reader, writer in held[3:]:
            writer.write(HEAD + b"\r\n")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    run_client(talk)


def test_a_head_without_end_does_not_fill_the_memory(run_client, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 60)

    async def talk(connect):
        _, writer = await connect()
        writer.write(HEAD)
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"X-A: %s\r\n" % (b"a" * 1000))
                await writer.drain()
                await asyncio.sleep(0)

    run_client(talk)


def test_a_large_body_after_its_refusal_is_no_head(run_client, monkeypatch):
    """The server discards the rest of the body, so that the client can read the refusal."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 60)

    async def talk(connect):
        reader, writer = await connect()
        writer.write(HEAD + b"Content-Length: 300000\r\n\r\n" + b"x" * 300_000)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    run_client(talk)
