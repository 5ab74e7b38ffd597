"""Checks of every request before Gradio: rate, known addresses, body size, safe headers, and errors as sentences.

Gradio serves more than this page needs (files, uploads, proxies); an address that is not listed here does not exist.
`/status` and the page's own compressed files are served here, so that they work while the rest is busy.
"""

import asyncio
import ipaddress
import json
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gradio.route_utils import FnIndexInferError
from starlette.exceptions import HTTPException

from app.serving.pace import Busy, Pace
from app.words import page as words
from jakiro.server.application import PATHS
from jakiro.server.errors import Refusal

MOST_NESTED = 32
# A page or its description takes Gradio 12 to 15 ms of the processor, other requests a tenth; a page is made of some
# hundred small files, which are cheap
DEAR, FILES = 10, 10
# Requests that one tab keeps open: the answer that it reads, and its other requests
HELD_BY_TAB = 2
# How many addresses may hold as much as one may
CROWDS = 2
BODY_SECONDS = 20.0
PAGES = {
    "/",
    "/config",
    "/left",
    "/login",
    "/logout",
    "/favicon.ico",
    "/theme.css",
    "/robots.txt",
    "/manifest.json",
    "/pwa_icon",
}
FOLDERS = ("/static/", "/assets/", "/svelte/")
API = {
    "user", "login_check", "token", "app_id", "info", "openapi.json", "reset", "run", "api", "call",
    "queue", "cancel", "component_server", "startup-events", "theme.css",
}  # fmt: skip
V1 = {f"/v1{path}" for path in PATHS}
_DEAR_PATHS = ("/", "/config", "/gradio_api/info", "/gradio_api/openapi.json")
# Gradio's message for an unknown answer or session
_UNKNOWN_EVENT = b'"404: Not Found"'
_EMPTY_ERROR = re.compile(rb'"error": ?null')
# Values by their names, which become a call's
_BY_NAME = "/gradio_api/call/v2/"
# FastAPI's own messages, and the page's in their place
_OURS = {
    "There was an error parsing the body": words.REQUEST_NOT_READ,
    "Not Found": words.NOT_SERVED,
    "Method Not Allowed": words.NOT_SERVED,
}
_OF_A_PROXY = {b"x-forwarded-host", b"x-forwarded-proto", b"x-gradio-server"}
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


class Guard:
    """ASGI middleware that protects the page.

    Args:
        app: the protected app.
        status: returns the values of `/status`.
        files: gzip files by address, sent unchanged.
        max_body_bytes: maximum size of a request body.
        requests_per_minute: limit per network address; expensive requests count as `DEAR`, files as 1 / `FILES`.
        tabs: number of browser tabs whose open requests one network address may have.
        frame_ancestors: pages that may show this one in a frame, in the syntax of a Content-Security-Policy.
        behind_proxy: whether a proxy is configured, which sets the address under which visitors see the page.
    """

    def __init__(
        self,
        app,
        status: Callable[[], dict],
        files: dict[str, bytes],
        max_body_bytes: int,
        requests_per_minute: int,
        tabs: int,
        frame_ancestors: str,
        behind_proxy: bool = False,
    ) -> None:
        self._app, self._status, self._files, self._max_body_bytes = app, status, files, max_body_bytes
        self._pace, self._reports, self._requests_per_minute = Pace(), Pace(), requests_per_minute
        self._behind_proxy = behind_proxy
        self._open, self._most_open = Counter(), HELD_BY_TAB * tabs
        self._headers = [(name.encode(), value.encode()) for name, value in headers(frame_ancestors).items()]

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
        answer = _Answer(send, self._headers, as_openai=path.startswith("/v1/"))
        if path == "/status":
            values = self._status()
            # Docker's HEALTHCHECK reads the status code only
            await answer.say(503 if values["state"] == "failed" else 200, values)
            return
        address = counted_address((scope.get("client") or ("",))[0])
        try:
            self._count(address, path)
            with self._held(address):
                await self._serve(self._believed(scope) | {"client": (address, 0)}, receive, answer, path)
        except Busy as error:
            await answer.refuse(str(error), seconds=error.seconds)

    def _believed(self, scope) -> dict:
        """Return the request without headers that only a configured proxy may set; Gradio trusts any client.

        For requests through a trusted proxy uvicorn has replaced the client's address by the forwarded one with port 0;
        a direct connection never has port 0.
        """
        if self._behind_proxy and scope.get("client") and scope["client"][1] == 0:
            return scope
        return scope | {"headers": [header for header in scope["headers"] if header[0] not in _OF_A_PROXY]}

    async def _serve(self, scope, receive, answer: "_Answer", path: str) -> None:
        if path in self._files and scope["method"] in ("GET", "HEAD"):
            await answer.give(self._files[path])
            return
        if not is_served(path):
            await answer.say(404, {"detail": words.NOT_SERVED})
            return
        if scope["method"] in ("POST", "PUT", "PATCH"):
            try:
                body = await asyncio.wait_for(self._body(receive), BODY_SECONDS)
            except TimeoutError:
                await answer.refuse(words.REQUEST_TOO_SLOW, 408)
                return
            if body is None:
                await answer.say(413, {"detail": words.REQUEST_TOO_LARGE.format(limit=self._max_body_bytes // 1024)})
                return
            text = text_of(body)
            if text is None or too_deep(text) or is_unsendable(text):
                await answer.say(400, {"detail": words.REQUEST_NOT_READ})
                return
            receive = _again(body, receive)
        try:
            await self._app(scope, receive, answer.send)
        except (KeyError, FnIndexInferError):
            # The request names a function or component that Gradio does not have
            await answer.fail(404, words.NOT_SERVED)
        except Exception as error:  # noqa: BLE001 - any error that odd input causes in Gradio becomes a sentence
            if isinstance(error, TypeError) and path.startswith(_BY_NAME):
                await answer.fail(400, words.REQUEST_NOT_READ)
                return
            # If the response had started, Gradio has sent the error itself; Starlette sets it as the cause
            if not isinstance(error.__cause__, HTTPException):
                self._report(error)
            await answer.fail(500, words.SERVER_FAILED)

    def _report(self, error: Exception) -> None:
        """Write a traceback, at most once a minute for the same place."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        with suppress(ValueError):
            self._reports.admit({(type(error), place.filename, place.lineno): 1})
            traceback.print_exception(error, file=sys.stderr)

    def _count(self, address: str, path: str) -> None:
        """Count a request of an address.

        Raises:
            Busy: the address has reached its limit per minute.
        """
        cheap = path in self._files or path.startswith(FOLDERS)
        dear = path in _DEAR_PATHS
        limit = (
            {("files", address): FILES * self._requests_per_minute} if cheap else {address: self._requests_per_minute}
        )
        self._pace.admit(limit, words.TOO_MANY_REQUESTS, count=DEAR if dear else 1)

    @contextmanager
    def _held(self, address: str) -> Iterator[None]:
        """Count a request while it is open.

        Raises:
            Busy: too many requests of this address or of all are open.
        """
        if self._open[address] >= self._most_open or self._open.total() >= CROWDS * self._most_open:
            raise Busy(words.TOO_MANY_OPEN)
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # forgets addresses without any

    async def _body(self, receive) -> bytes | None:
        """Return the body, or None if it is larger than allowed."""
        parts, size = [], 0
        while True:
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body_bytes:
                return None
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return b"".join(parts)


class _Answer:
    """Adds headers to a response and replaces bare errors by sentences.

    Args:
        as_openai: errors have OpenAI's form; errors of that interface have it already.
    """

    def __init__(self, send, headers: list, as_openai: bool) -> None:
        self._send, self._headers, self._as_openai = send, headers, as_openai
        self.started, self._ended = False, False
        self._failed: int | None = None
        self._body = b""

    async def send(self, message) -> None:
        if message["type"] == "http.response.start":
            if not self._as_openai and (message["status"] >= 500 or message["status"] in (400, 404, 405, 422)):
                self._failed = message["status"]
                return
            self.started = True
            message = message | {"headers": [*message.get("headers", ()), *self._headers]}
        elif self._failed:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._say_failure()
            return
        elif self._as_openai:
            pass
        elif b'"success":false' in (body := message.get("body", b"")) or body.startswith(b"event: error"):
            sentence = json.dumps({"error": words.SERVER_FAILED}).encode()[1:-1]
            unknown = json.dumps(words.ANSWER_UNKNOWN).encode()
            message = message | {"body": _EMPTY_ERROR.sub(sentence, body).replace(_UNKNOWN_EVENT, unknown)}
        self._ended = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def _say_failure(self) -> None:
        """Send a failed response: a refusal keeps its sentence as a client error, any other gets a general sentence."""
        try:
            values = json.loads(self._body)
        except ValueError:
            values = None
        sentence = (values.get("error") or values.get("detail")) if isinstance(values, dict) else None
        if self._failed == 422:
            await self.say(422, {"detail": words.REQUEST_NOT_READ})
        elif isinstance(sentence, str):
            sentence = _OURS.get(sentence, sentence)
            await self.say(400 if self._failed == 500 else self._failed, {"error": sentence, "detail": sentence})
        elif self._failed < 500:
            await self.say(
                self._failed, {"detail": words.NOT_SERVED if self._failed in (404, 405) else words.REQUEST_NOT_READ}
            )
        else:
            await self.say(500, {"detail": words.SERVER_FAILED})

    async def fail(self, status: int, sentence: str) -> None:
        """Send a sentence if nothing has been sent; otherwise end the response, so that the client does not wait."""
        if not self.started:
            await self.say(status, {"detail": sentence})
        elif not self._ended:
            with suppress(RuntimeError):  # uvicorn's own error if the response has a declared length
                await self._send({"type": "http.response.body", "body": b""})

    async def say(self, status: int, values: dict, about: dict[str, str] | None = None) -> None:
        """Send values as JSON with additional headers."""
        if self._as_openai and status >= 400:
            values = Refusal(status, values["detail"]).to_dict()
        body = json.dumps(values, ensure_ascii=False).encode()
        await self._send_whole(status, body, {"content-type": "application/json; charset=utf-8"} | (about or {}))

    async def refuse(self, sentence: str, status: int = 429, seconds: int = 1) -> None:
        """Send a sentence and close the connection, so that rejected connections do not accumulate."""
        about = {"connection": "close", "retry-after": str(seconds)}
        await self.say(status, {"error": sentence, "detail": sentence}, about)

    async def give(self, body: bytes) -> None:
        """Send a compressed file. Its address changes with its content, so it may be cached for a year."""
        await self._send_whole(
            200, body, {"content-type": "application/gzip", "cache-control": "public, max-age=31536000, immutable"}
        )

    async def _send_whole(self, status: int, body: bytes, about: dict[str, str]) -> None:
        about = [
            (name.encode(), value.encode()) for name, value in (about | {"content-length": str(len(body))}).items()
        ]
        self.started = self._ended = True
        await self._send({"type": "http.response.start", "status": status, "headers": [*about, *self._headers]})
        await self._send({"type": "http.response.body", "body": body})


def headers(frame_ancestors: str) -> dict[str, str]:
    """Return the headers of every response. Gradio's page needs inline scripts and `eval`, but no other origins."""
    policy = {
        "default-src": "'self'",
        "script-src": "'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self' data: blob:",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": frame_ancestors,
    }
    return {
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=()",
    }


def counted_address(address: str) -> str:
    """Return the key under which an address is counted: itself, or the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    mapped = parsed.ipv4_mapped
    return str(mapped or ipaddress.ip_network((parsed, 64), strict=False).network_address)


def is_served(path: str) -> bool:
    """Return whether the page has anything at this address."""
    if ".." in path or "\\" in path or "\0" in path:
        return False
    if path.startswith("/gradio_api/"):
        return path.removeprefix("/gradio_api/").split("/")[0] in API
    if path.startswith(f"/v1{PATHS[0]}/"):
        return True
    return path in V1 or path in PAGES or path.removesuffix("/") in PAGES or path.startswith(FOLDERS)


def text_of(body: bytes) -> str | None:
    """Decode a JSON body like the server (UTF-8, 16 or 32); None if it is not text."""
    try:
        return body.decode(json.detect_encoding(body), "surrogatepass")
    except UnicodeDecodeError:
        return None


def too_deep(text: str) -> bool:
    """Return whether JSON is nested deeper than any request of this page; strings are ignored."""
    if text.count("[") + text.count("{") <= MOST_NESTED:
        return False
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", _STRINGS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MOST_NESTED:
            return True
    return False


def is_unsendable(text: str) -> bool:
    """Return whether JSON has values that cannot be sent back: half a surrogate pair, or a number that is not finite.

    Python reads `NaN`, `Infinity` and `1e999`, but a sentence about a value must be valid JSON.
    """
    try:
        text.encode()
        values = json.loads(text)
    except UnicodeEncodeError:
        return True
    except ValueError:
        return False
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return True
    return False


def _again(body: bytes, receive):
    """Return a `receive` that yields a body that was already read, and then the rest of the connection's messages."""
    was_read = False

    async def receive_again():
        nonlocal was_read
        if was_read:
            return await receive()
        was_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
