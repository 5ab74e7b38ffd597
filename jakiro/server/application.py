"""Routes of the OpenAI-compatible API: access checks, bodies, and responses that end if the client disconnects."""

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from jakiro.config import require, shortened
from jakiro.drafters.registry import Methods
from jakiro.server.errors import Refusal
from jakiro.server.event_queue import Event
from jakiro.server.reply import Reply
from jakiro.server.request import CompletionRequest, read_chat, read_text

PATHS = ("/models", "/chat/completions", "/completions")
MAX_BYTES = 512 * 1024
# Host names that no public website can have
_LOCAL_NAMES = (".localhost", ".local", ".internal")
_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Caller:
    """Client of a request.

    Attributes:
        address: network address.
        key: hash of the API key; None if the server requires none.
    """

    address: str
    key: str | None


class Backend(Protocol):
    """Decodes the answers.

    Attributes:
        model: name of the one model; reading it raises `Refusal` while none is loaded.
        default_tokens: limit of an answer if the request has none.
        methods: the registered drafting methods.
    """

    model: str
    default_tokens: int
    methods: Methods

    def answer(self, request: CompletionRequest, caller: Caller) -> AsyncIterator[Event]:
        """Yield the scored prompt if requested, header, steps and end of an answer; closing the iterator stops it.

        Raises:
            Refusal: before the first event, or later if the answer cannot continue.
        """


def read_keys(key_or_file: str | None) -> tuple[str, ...]:
    """Return the API keys: the text itself, or the lines of the file that it names; none for None.

    Raises:
        ValueError: the file contains no key, or the text looks like a path of a missing file.
    """
    if not key_or_file:
        return ()
    path = Path(key_or_file)
    # A key may contain slashes as well; the folder of a mistyped path exists
    looks_like_path = (
        key_or_file.startswith((".", "~")) or path.suffix == ".txt" or (len(path.parts) > 2 and path.parent.is_dir())
    )
    require(path.is_file() or not looks_like_path, f"There is no file {key_or_file} with API keys; correct its path.")
    # Editors on Windows write a byte order mark, which would become part of the first key
    lines = path.read_text(encoding="utf-8-sig").split() if path.is_file() else [key_or_file]
    require(bool(lines), f"The file {key_or_file} holds no API key; write one on each line.")
    return tuple(lines)


def application(
    backend: Backend, keys: Sequence[str] = (), closed: str | None = None, max_bytes: int = MAX_BYTES
) -> Starlette:
    """Return the API, to be mounted at /v1.

    Args:
        backend: decodes the answers.
        keys: every request needs one of these; if empty, none is required.
        closed: a message with which every request is refused.
        max_bytes: largest body.
    """
    created = int(time.time())

    def entry() -> dict:
        return {"id": backend.model, "object": "model", "created": created, "owned_by": "jakiro"}

    async def list_models(request: Request) -> JSONResponse:
        _check(request, keys, closed)
        return JSONResponse({"object": "list", "data": [entry()]})

    async def show_model(request: Request) -> JSONResponse:
        _check(request, keys, closed)
        _check_model(request.path_params["name"], backend)
        return JSONResponse(entry())

    def endpoint(read: Callable[[dict, int], tuple[CompletionRequest, ...]]) -> Callable:
        async def respond(request: Request) -> _Response:
            caller = _check(request, keys, closed)
            requests = read(await _read_body(request, max_bytes), backend.default_tokens)
            _check_model(requests[0].body.model, backend)
            method = _method(requests[0], backend)
            return _Response(backend, [replace(item, method=method) for item in requests], caller)

        return respond

    async def refuse(request: Request, error: Exception) -> JSONResponse:
        return _refusal(error).response()

    async def refuse_path(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path} is not served; /v1 has " + ", ".join(PATHS) + "."
        return Refusal(error.status_code, message).response()

    routes = [
        Route(PATHS[0], list_models),
        Route(f"{PATHS[0]}/{{name:path}}", show_model),
        Route(PATHS[1], endpoint(read_chat), methods=["POST"]),
        Route(PATHS[2], endpoint(read_text), methods=["POST"]),
    ]
    handlers = {Refusal: refuse, HTTPException: refuse_path, Exception: refuse}
    return Starlette(routes=routes, exception_handlers=handlers)


def _check_model(name: str, backend: Backend) -> None:
    if name != backend.model:
        message = f"There is no model {shortened(name)} here; ask for {backend.model!r}."
        raise Refusal(404, message, "model", "model_not_found")


def _method(request: CompletionRequest, backend: Backend) -> str | None:
    """Return the name of the requested drafting method, also if the request has an alias; None if it has none."""
    method = request.extension.method
    if method is None:
        return None
    try:
        return backend.methods.named(method).name
    except ValueError as error:
        raise Refusal(400, str(error), "jakiro.method") from error


def _check(request: Request, keys: Sequence[str], closed: str | None) -> Caller:
    """Return the client of a request.

    Raises:
        Refusal: the API key is unknown; or, if none is required, the request may come from a website.
    """
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host:
        raise Refusal(403, f"Requests from the website {origin} are not allowed; send them from a program.")
    if closed is not None:
        raise Refusal(401, closed)
    if not keys and not _is_local_name(host):
        message = f"The host {host!r} is not local; use localhost or an IP address, or start the server with --api-key."
        raise Refusal(403, message)
    address = request.client.host if request.client else ""
    if not keys:
        return Caller(address, None)
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    # On a private Space, Authorization carries the Hub's own token
    key = request.headers.get("api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    if not any([hmac.compare_digest(key.encode(), valid_key.encode()) for valid_key in keys]):
        received = "an unknown key" if key else "none"
        message = f"This server requires an API key, as “Authorization: Bearer KEY” or “api-key: KEY”; got {received}."
        raise Refusal(401, message, code="invalid_api_key")
    return Caller(address, hashlib.sha256(key.encode()).hexdigest())


def _is_local_name(host_header: str) -> bool:
    """Return whether a Host header names this machine or its network.

    A website's name that points here (DNS rebinding) is another name.
    """
    try:
        host = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return False
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return bool(host) and ("." not in host or host.endswith(_LOCAL_NAMES) or host == os.environ.get("SPACE_HOST"))


async def _read_body(request: Request, max_bytes: int) -> dict:
    """Return the body, which must be a JSON object."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, f"Content-Type must be application/json; got {kind or 'none'}.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise Refusal(413, f"The request is too large: at most {max_bytes // 1024} KB are read here.")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not JSON ({error}).") from error
    if not isinstance(values, dict):
        raise Refusal(400, f"The body must be an object; got a {type(values).__name__}.")
    return values


class _Response:
    """A response that starts with the first event, so that an error before it has its own status.

    Args:
        backend: decodes the answers.
        requests: the answers, decoded one after another.
        caller: the client.
    """

    def __init__(self, backend: Backend, requests: Sequence[CompletionRequest], caller: Caller) -> None:
        self._backend, self._requests, self._caller = backend, requests, caller
        self._reply, self._stream = Reply(requests, backend.model), requests[0].body.stream

    async def __call__(self, scope, receive, send) -> None:
        work = asyncio.create_task(self._respond(scope, receive, send))
        disconnect = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            disconnect.cancel()
            with suppress(asyncio.CancelledError, OSError, ClientDisconnect):
                await work

    async def _respond(self, scope, receive, send) -> None:
        async with aclosing(self._chunks()) as chunks:
            try:
                first = await anext(chunks)
                if not self._stream:
                    async for _ in chunks:
                        pass
                    response = JSONResponse(self._reply.to_dict())
            except Exception as error:  # noqa: BLE001 - the client receives every error in OpenAI's format
                response = _refusal(error).response()
                await response(scope, receive, send)
                return
            if not self._stream:
                await response(scope, receive, send)
                return
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                await _send_chunks(send, first)
                async for more in chunks:
                    await _send_chunks(send, more)
            except Exception as error:  # noqa: BLE001 - as above
                await _send_chunks(send, [_refusal(error).to_dict()])
            await send({"type": "http.response.body", "body": _DONE})

    async def _chunks(self) -> AsyncIterator[list[dict]]:
        """Yield the chunks of each event of all answers."""
        for index, request in enumerate(self._requests):
            async with aclosing(self._backend.answer(request, self._caller)) as events:
                async for event in events:
                    yield self._reply.take(index, event)


async def _send_chunks(send, chunks: list[dict]) -> None:
    for chunk in chunks:
        text = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
        await send({"type": "http.response.body", "body": f"data: {text}\n\n".encode(), "more_body": True})


async def _wait_for_disconnect(receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(error: Exception) -> Refusal:
    """Return the error as the client receives it; an unexpected one is printed on the server."""
    if isinstance(error, Refusal):
        return error
    traceback.print_exception(error, file=sys.stderr)
    return Refusal(500, f"Something went wrong while answering ({type(error).__name__}); ask again.")
