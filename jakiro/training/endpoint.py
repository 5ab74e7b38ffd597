"""Text from a server with OpenAI's completions interface (vLLM, SGLang) instead of a model that is loaded here.

Requests are sent as token ids. If the server returns ids they are used as they are, else its text is tokenised again.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import httpx

from jakiro.proxies import check_proxies
from jakiro.training.writing import TextRequest, Written

TRIES, FIRST_PAUSE, ANSWER_SECONDS = 5, 0.5, 600.0
_SEED_BITS, _GOLDEN = 31, 0x9E3779B97F4A7C15
_BUSY = {408, 429, 500, 502, 503, 504}


class Endpoint:
    """A server that continues texts.

    Args:
        url: of the server, with or without the closing /v1. A name and password in it are sent, and shown nowhere;
            on this machine the server is asked without a proxy.
        tokenizer: the target's; tokenises texts where the server returns no ids.
        concurrency: requests sent at once; the server batches them.
        api_key: sent with every request, and shown nowhere; None for a server that asks for none.
        first_pause: seconds before a failed request is tried again; doubled each time.

    Attributes:
        model: the first model the server names.

    Raises:
        ValueError: the URL is none, or the server cannot be reached or does not answer as one.
    """

    def __init__(
        self, url: str, tokenizer, concurrency: int, api_key: str | None = None, first_pause: float = FIRST_PAUSE
    ) -> None:
        self.url, login = _address(url)
        self.tokenizer, self.concurrency, self.first_pause = tokenizer, concurrency, first_pause
        self._secrets = [secret for secret in (api_key, *(login or ())) if secret]
        check_proxies()
        self.client = httpx.Client(
            timeout=ANSWER_SECONDS,
            limits=httpx.Limits(max_connections=concurrency),
            auth=login,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
        )
        try:
            self.model = self._answer("GET", "/models")["data"][0]["id"]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"The server at {self.url} names no model; is it an OpenAI-compatible server?") from error

    def write_texts(self, queue: deque[TextRequest]) -> Iterator[Written]:
        """Yields every text as soon as it has ended; the caller may add requests between two results.

        Raises:
            ValueError: the server fails again and again, or refuses.
        """
        running: dict[Future, TextRequest] = {}
        with ThreadPoolExecutor(self.concurrency) as pool:
            try:
                while queue or running:
                    while queue and len(running) < self.concurrency:
                        request = queue.popleft()
                        running[pool.submit(self._complete, request)] = request
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield Written(running.pop(future), future.result())
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _complete(self, request: TextRequest) -> list[int]:
        body = {
            "model": self.model,
            "prompt": request.ids,
            "max_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "seed": _short_seed(request.seed),
            "return_token_ids": True,
        }
        if request.top_k:
            body["top_k"] = request.top_k
        answer = self._answer("POST", "/completions", body)
        try:
            choice = answer["choices"][0]
            ids = choice.get("token_ids")
            if ids is None:
                ids = self.tokenizer.encode(choice["text"], add_special_tokens=False)
                if choice.get("finish_reason") == "stop" and self.tokenizer.eos_token_id is not None:
                    ids.append(self.tokenizer.eos_token_id)
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"The server at {self.url} sent no completion (missing: {error}).") from error
        return list(ids)

    def _answer(self, method: str, path: str, body: dict | None = None) -> dict:
        """The JSON answer; a busy or unreachable server is asked up to `TRIES` times."""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(self.first_pause * 2 ** (attempt - 1))
            try:
                response = self.client.request(method, self.url + path, json=body)
            except httpx.HTTPError as error:
                trouble = str(error) or type(error).__name__
                continue
            if response.status_code in _BUSY:
                trouble = f"status {response.status_code}"
                continue
            if response.is_error:
                said = " ".join(response.text.split())
                for secret in self._secrets:
                    said = said.replace(secret, "…")
                raise ValueError(
                    f"The server at {self.url} refused {path} (status {response.status_code}): {said[:200]}"
                )
            try:
                return response.json()
            except ValueError as error:
                raise ValueError(f"The server at {self.url} answered {path} with a reply that is not JSON.") from error
        raise ValueError(f"The server at {self.url} did not answer {path} in {TRIES} tries ({trouble}).")


def _address(url: str) -> tuple[str, tuple[str, str] | None]:
    """A server's URL that ends in /v1, without the name and password that it may hold, and these.

    Raises:
        ValueError: it is no address of a server, or asks something, which may be a key; it is not shown.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ValueError(
            "--endpoint takes the address of a server, such as http://localhost:8000, without anything after a “?”; "
            "a key comes from --api-key-file or OPENAI_API_KEY."
        )
    login = (parsed.username, parsed.password) if parsed.userinfo else None
    return str(parsed.copy_with(userinfo=None)).rstrip("/").removesuffix("/v1") + "/v1", login


def read_api_key(file: str | None) -> str | None:
    """The key in a file, else the one in OPENAI_API_KEY; None where there is neither.

    Raises:
        ValueError: there is no such file, or what it holds is no key.
    """
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if file is not None:
        try:
            key = Path(file).read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"--api-key-file takes a text file with the key alone; {file} cannot be read.") from None
    if (file and not key) or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(
            f"{file or 'OPENAI_API_KEY'} holds no API key: one word of ASCII letters and signs is expected."
        )
    return key or None


def _short_seed(seed: int) -> int:
    """A seed in the 31 bits that every server takes: the lower ones, moved by what the upper ones say."""
    upper = (seed >> _SEED_BITS) * _GOLDEN % 2**64 >> (64 - _SEED_BITS)
    return (seed + upper) % 2**_SEED_BITS
