"""The application: who may ask, what came, and the answer on its way out, which ends when its client hangs up."""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import os
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from jakiro.config import require, shortened
from jakiro.server.errors import Refusal
from jakiro.server.event_queue import Event
from jakiro.server.reply import Reply
from jakiro.server.request import Wish, read_chat, read_text

PATHS = ("/models", "/chat/completions", "/completions")
MOST_BYTES = 512 * 1024
# Names that nobody can register for a website of theirs
_OWN_NAMES = (".localhost", ".local", ".internal")
_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the network address, and the hash of the API key where the server asks for one."""

    address: str
    key: str | None


class Backend(Protocol):
    """What answers.

    Attributes:
        model: the one model's name; asking for it raises `Refusal` while there is none.
        most_tokens: of an answer, where a request names no number.
    """

    model: str
    most_tokens: int

    def answer(self, wish: Wish, caller: Caller) -> AsyncIterator[Event]:
        """Header, steps and end of an answer; closing the iterator stops it.

        Raises:
            Refusal: before the header, or in the middle of an answer that cannot go on.
        """


def read_keys(given: str | None) -> tuple[str, ...]:
    """API keys: what was given, or the lines of the file that it names; none for nothing.

    Raises:
        ValueError: the file holds none, or what looks like a file's name is none.
    """
    if not given:
        return ()
    path = Path(given)
    # A key may have slashes, too; a mistyped file's folder is there
    named = given.startswith((".", "~")) or path.suffix == ".txt" or (len(path.parts) > 2 and path.parent.is_dir())
    require(path.is_file() or not named, f"There is no file {given} with API keys; correct its path.")
    # Windows' editors begin a file with a mark, which would be part of the first key
    lines = path.read_text(encoding="utf-8-sig").split() if path.is_file() else [given]
    require(bool(lines), f"The file {given} holds no API key; write one on each line.")
    return tuple(lines)


def application(
    backend: Backend, keys: Sequence[str] = (), closed: str | None = None, most_bytes: int = MOST_BYTES
) -> Starlette:
    """OpenAI's interface, to be mounted at /v1.

    Args:
        keys: one of which every request must bring; none asks for none.
        closed: a sentence in place of every answer.
        most_bytes: of a request's body.
    """
    created = int(time.time())

    async def models(request: Request) -> JSONResponse:
        _check(request, keys, closed)
        entry = {"id": backend.model, "object": "model", "created": created, "owned_by": "jakiro"}
        return JSONResponse({"object": "list", "data": [entry]})

    def endpoint(read: Callable[[dict, int], Wish]) -> Callable:
        async def answered(request: Request) -> _Answer:
            caller = _check(request, keys, closed)
            wish = read(await _body(request, most_bytes), backend.most_tokens)
            if wish.body.model != backend.model:
                sentence = f"There is no model {shortened(wish.body.model)} here; ask for {backend.model!r}."
                raise Refusal(404, sentence, "model", "model_not_found")
            return _Answer(backend.answer(wish, caller), Reply(wish, backend.model), wish.body.stream)

        return answered

    async def refused(request: Request, error: Exception) -> JSONResponse:
        return _refusal(error).response()

    async def not_served(request: Request, error: HTTPException) -> JSONResponse:
        sentence = f"{request.method} {request.url.path} is not served; /v1 has " + ", ".join(PATHS) + "."
        return Refusal(error.status_code, sentence).response()

    routes = [
        Route(PATHS[0], models),
        Route(PATHS[1], endpoint(read_chat), methods=["POST"]),
        Route(PATHS[2], endpoint(read_text), methods=["POST"]),
    ]
    return Starlette(
        routes=routes, exception_handlers={Refusal: refused, HTTPException: not_served, Exception: refused}
    )


def _check(request: Request, keys: Sequence[str], closed: str | None) -> Caller:
    """Who asks.

    Raises:
        Refusal: no key that is known; or where none is asked for, a name or an origin that a website may have.
    """
    origin, given = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != given:
        raise Refusal(403, f"Websites such as {origin} may not ask here; ask from a program.")
    if closed is not None:
        raise Refusal(401, closed)
    if not keys and not _is_own_name(given):
        raise Refusal(403, f"You asked for the host {given!r}; ask for localhost or an IP address, or use --api-key.")
    address = request.client.host if request.client else ""
    if not keys:
        return Caller(address, None)
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    # Of a private Space, Authorization has the Hub's own token
    given = request.headers.get("api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    if not any([hmac.compare_digest(given.encode(), key.encode()) for key in keys]):
        came = "an unknown key" if given else "none"
        sentence = (
            f"This server asks for an API key, as “Authorization: Bearer KEY” or “api-key: KEY”; you gave {came}."
        )
        raise Refusal(401, sentence, code="invalid_api_key")
    return Caller(address, hashlib.sha256(given.encode()).hexdigest())


def _is_own_name(given: str) -> bool:
    """Whether a Host header names this machine or its own network, so that no website's name was made to point here."""
    try:
        host = urlsplit(f"//{given}").hostname or ""
    except ValueError:
        return False
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return bool(host) and ("." not in host or host.endswith(_OWN_NAMES) or host == os.environ.get("SPACE_HOST"))


async def _body(request: Request, most_bytes: int) -> dict:
    """The body as an object of JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, f"Content-Type must be application/json; you gave {kind or 'none'}.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            raise Refusal(413, f"The request is too large: at most {most_bytes // 1024} KB are read here.")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not JSON ({error}).") from error
    if not isinstance(values, dict):
        raise Refusal(400, f"The body must be an object; you gave a {type(values).__name__}.")
    return values


class _Answer:
    """A response that begins once the answer does, so that what is refused before has its own status."""

    def __init__(self, events: AsyncIterator[Event], reply: Reply, stream: bool) -> None:
        self._events, self._reply, self._stream = events, reply, stream

    async def __call__(self, scope, receive, send) -> None:
        work, gone = asyncio.create_task(self._respond(scope, receive, send)), asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            gone.cancel()
            with suppress(asyncio.CancelledError, OSError, ClientDisconnect):
                await work

    async def _respond(self, scope, receive, send) -> None:
        async with aclosing(self._events) as events:
            try:
                chunks = self._reply.take(await anext(events))
                if not self._stream:
                    async for event in events:
                        self._reply.take(event)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client reads a sentence
                await _refusal(error).response()(scope, receive, send)
                return
            if not self._stream:
                await JSONResponse(self._reply.whole())(scope, receive, send)
                return
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                await _send_chunks(send, chunks)
                async for event in events:
                    await _send_chunks(send, self._reply.take(event))
            except Exception as error:  # noqa: BLE001 - as above
                await _send_chunks(send, [_refusal(error).to_dict()])
            await send({"type": "http.response.body", "body": _DONE})


async def _send_chunks(send, chunks: list[dict]) -> None:
    for chunk in chunks:
        text = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
        await send({"type": "http.response.body", "body": f"data: {text}\n\n".encode(), "more_body": True})


async def _gone(receive) -> None:
    """Until the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    traceback.print_exception(error, file=sys.stderr)
    return Refusal(500, f"Something went wrong while answering ({type(error).__name__}); ask again.")
