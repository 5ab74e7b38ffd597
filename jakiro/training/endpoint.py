"""Text from a server with OpenAI's completions API (vLLM, SGLang, llama.cpp, Jakiro) that runs the target.

Prompts are sent as token ids of the target's own tokenizer. If the server can return token
ids, they are used; otherwise its text is tokenised again.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import httpx2

from jakiro.config import is_count, require
from jakiro.training.writing import TextRequest

# The pause before a request is repeated is doubled each time
MAX_TRIES, FIRST_PAUSE, TIMEOUT_SECONDS = 5, 0.5, 600.0
# Seeds of this many bits are valid on all servers
_SEED_BITS, _GOLDEN = 31, 0x9E3779B97F4A7C15
_TEMPORARY = {408, 429, 500, 502, 503, 504}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Field of vLLM's API; left out for servers that refuse unknown fields
_RETURN_IDS = "return_token_ids"


class Endpoint:
    """A server that continues texts.

    Args:
        url: of the server, with or without /v1 at the end. A user name and password in it are sent, but never shown.
        tokenizer: of the target.
        concurrency: number of requests at once.
        api_key: sent with every request, but never shown; None sends none.

    Attributes:
        url: address of the API without user name and password.
        model: name of the server's first model.

    Raises:
        ValueError: the URL is invalid, or the server cannot be reached or has another API.
    """

    def __init__(self, url: str, tokenizer, concurrency: int, api_key: str | None = None) -> None:
        self.url, host, login = _parse_url(url)
        self.tokenizer, self.concurrency = tokenizer, concurrency
        self._secrets = [secret for secret in (api_key, *(login or ())) if secret]
        self._returns_ids = True
        try:
            self._client = httpx2.Client(
                timeout=TIMEOUT_SECONDS,
                limits=httpx2.Limits(max_connections=concurrency),
                auth=login,
                headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
                # No proxy for this machine
                trust_env=host not in _LOOPBACK,
            )
        except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
            raise ValueError(
                f"A connection cannot be made with the proxy or certificate variables of this environment "
                f"({type(error).__name__}); correct or unset them."
            ) from error
        try:
            self.model = str(self._request("GET", "/models")["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"The server at {self.url} lists no model; give an OpenAI-compatible server.") from error

    def write_texts(self, queue: deque[TextRequest]) -> Iterator[tuple[TextRequest, list[int]]]:
        """Yield each request with its new token ids, in the order in which they finish.

        Args:
            queue: consumed from the left; the caller may add requests between two results.

        Raises:
            ValueError: the server refuses a request, or fails several times.
        """
        running: dict[Future, TextRequest] = {}
        pool = ThreadPoolExecutor(self.concurrency)
        try:
            while queue or running:
                while queue and len(running) < self.concurrency:
                    request = queue.popleft()
                    running[pool.submit(self._complete, request)] = request
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _complete(self, request: TextRequest) -> list[int]:
        body = {
            "model": self.model,
            "prompt": request.ids,
            "max_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "seed": _short_seed(request.seed),
        }
        if request.top_k and request.temperature > 0:
            body["top_k"] = request.top_k
        answer = self._request("POST", "/completions", body | ({_RETURN_IDS: True} if self._returns_ids else {}))
        try:
            choice = answer["choices"][0]
            ids = choice.get("token_ids")
            if ids is None:
                ids = self.tokenizer.encode(choice["text"], add_special_tokens=False)
                if choice.get("finish_reason") == "stop" and self.tokenizer.eos_token_id is not None:
                    ids.append(self.tokenizer.eos_token_id)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"The server at {self.url} sent no completion (missing: {error}).") from error
        is_known = isinstance(ids, list) and all(is_count(token, 0) and token < len(self.tokenizer) for token in ids)
        require(is_known, f"The server at {self.url} sent token ids outside the tokenizer; give its target.")
        return ids

    def _request(self, method: str, path: str, body: dict | None = None) -> dict:
        """Return the JSON response; temporary errors are repeated up to `MAX_TRIES` times."""
        for attempt in range(MAX_TRIES):
            if attempt:
                time.sleep(FIRST_PAUSE * 2 ** (attempt - 1))
            try:
                response = self._client.request(method, self.url + path, json=body)
            except httpx2.HTTPError as error:
                reason = str(error) or type(error).__name__
                continue
            if response.status_code in _TEMPORARY:
                reason = f"status {response.status_code}"
                continue
            if response.status_code in (400, 422) and body and _RETURN_IDS in body and _RETURN_IDS in response.text:
                self._returns_ids = False
                return self._request(method, path, {name: body[name] for name in body if name != _RETURN_IDS})
            if response.is_error:
                message = self._without_secrets(response.text)
                raise ValueError(f"The server at {self.url} refused {path}, status {response.status_code}: {message}")
            try:
                return response.json()
            except ValueError as error:
                raise ValueError(f"The server at {self.url} answered {path} with a text that is not JSON.") from error
        reason = self._without_secrets(reason)
        raise ValueError(f"The server at {self.url} did not answer {path} in {MAX_TRIES} tries ({reason}).")

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return " ".join(text.split())[:200]


def _parse_url(url: str) -> tuple[str, str, tuple[str, str] | None]:
    """Return a server's address that ends in /v1, its host, and the user name and password in the URL.

    Raises:
        ValueError: the URL is invalid or has a query, which may contain a key; the message does not repeat it.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        parsed = httpx2.URL()
    require(
        parsed.scheme in ("http", "https") and bool(parsed.host) and not parsed.query and not parsed.fragment,
        "--endpoint must be the address of a server, such as http://localhost:8000, without “?”; a key is read from "
        "--api-key-file or OPENAI_API_KEY.",
    )
    login = (parsed.username, parsed.password) if parsed.userinfo else None
    address = str(parsed.copy_with(userinfo=None)).rstrip("/").removesuffix("/v1") + "/v1"
    return address, parsed.host, login


def read_api_key(file: str | None) -> str | None:
    """Return the key in a file, else that of OPENAI_API_KEY; None if there is none.

    Raises:
        ValueError: the file cannot be read, or its content is no key.
    """
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if file is not None:
        try:
            key = Path(file).read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"--api-key-file must be a text file with the key only; {file} cannot be read.") from None
    require(
        bool(key or file is None) and key.isascii() and key.isprintable() and " " not in key,
        f"{file or 'OPENAI_API_KEY'} has no API key; one word of ASCII characters is expected.",
    )
    return key or None


def _short_seed(seed: int) -> int:
    """Return a seed of 31 bits that depends on all bits of the seed."""
    upper = (seed >> _SEED_BITS) * _GOLDEN % 2**64 >> (64 - _SEED_BITS)
    return (seed + upper) % 2**_SEED_BITS
