"""Many visitors at once, as programs: `python -m app.tools.load ADDRESS` sends questions and prints waiting times.

Each question has its own word, so that an answer for another visitor is noticed if the model repeats the word (a test's
model does); with any model all run ids must differ.
"""

import argparse
import http.client
import json
import random
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from jakiro.drafters.registry import DEFAULT
from jakiro.system import errors_as_one_sentence


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one visitor.

    Attributes:
        update: the last update, as docs/api.md describes it; None after an error.
        error: the error message, if any.
        messages: different messages of the updates in their order, such as the place in the queue.
        first_seconds: seconds from the request to the first text; None without text.
        total_seconds: seconds from the request to the end.
    """

    update: dict | None
    error: str | None
    messages: tuple[str, ...]
    first_seconds: float | None
    total_seconds: float


class Call:
    """One question on its way: iterate for ("generating" | "complete" | "error", data); `close` hangs up.

    Args:
        headers: sent with it, as a proxy would.
    """

    def __init__(
        self,
        address: str,
        endpoint: str,
        values: list,
        seconds: float = 120,
        headers: dict[str, str] | None = None,
    ) -> None:
        parts = urlsplit(address)
        self.session = uuid.uuid4().hex
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
        body = json.dumps({"data": values, "session_hash": self.session})
        path = f"{parts.path.rstrip('/')}/gradio_api/call/{endpoint}"
        self._connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
        response = json.loads(self._connection.getresponse().read())
        if "event_id" not in response:
            reason = response.get("detail", response)
            reason = reason.get("error") if isinstance(reason, dict) else reason
            raise ValueError(f"The page did not take the question: {reason}.")
        self._connection.request("GET", f"{path}/{response['event_id']}", headers=headers or {})
        self._response = self._connection.getresponse()

    def __iter__(self) -> Iterator[tuple[str, object]]:
        event = ""
        while line := self._response.readline():
            name, _, text = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = text
            elif name == "data" and event != "heartbeat":
                yield event, json.loads(text)
        self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def ask(address: str, question: str, max_new_tokens: int = 48) -> Reply:
    """Send one question as a separate visitor and wait for the end."""
    start, first, last, messages = time.monotonic(), None, None, []
    stream = Call(address, "generate", [question, max_new_tokens, 0, 1, 0, 0, DEFAULT.name, "", None])
    for event, data in stream:
        if event == "error":
            stream.close()
            error = data.get("error") if isinstance(data, dict) else str(data)
            return Reply(None, error, tuple(messages), first, time.monotonic() - start)
        last = data[0]
        if last["message"] and last["message"] not in messages:
            messages.append(last["message"])
        if first is None and last["text"]:
            first = time.monotonic() - start
    return Reply(last, None, tuple(messages), first, time.monotonic() - start)


def crowd(address: str, clients: int, requests: int, max_new_tokens: int = 48) -> list[tuple[str, Reply]]:
    """Send requests by `clients` threads; return (word, answer) of each."""
    words = [f"word{random.randrange(16**8):08x}" for _ in range(requests)]
    with ThreadPoolExecutor(clients) as threads:
        replies = threads.map(lambda word: ask(address, f"Repeat the word {word}.", max_new_tokens), words)
        return list(zip(words, replies, strict=True))


def percentile(values: list[float], share: float) -> float:
    """Return the value at this percentile."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="such as http://127.0.0.1:7860")
    parser.add_argument("--clients", type=int, default=20, help="visitors at once")
    parser.add_argument("--requests", type=int, default=40, help="questions of all together")
    parser.add_argument("--max-new-tokens", type=int, default=48, help="of one answer")
    arguments = parser.parse_args()
    with errors_as_one_sentence():
        answers = crowd(arguments.address, arguments.clients, arguments.requests, arguments.max_new_tokens)
    done = [answer for _, answer in answers if answer.update is not None]
    ids = {answer.update["run"] for answer in done}
    refusals = sorted({answer.error for _, answer in answers if answer.error})
    lines = [f"{len(done)} of {len(answers)} answered, {len(ids)} different runs"]
    lines += [f"refused: {sentence}" for sentence in refusals]
    for name, values in (
        ("first token", [answer.first_seconds for answer in done if answer.first_seconds is not None]),
        ("whole answer", [answer.total_seconds for answer in done]),
    ):
        if values:
            middle, high = percentile(values, 0.5), percentile(values, 0.95)
            lines.append(f"{name}: median {middle:.1f} s, 95 % within {high:.1f} s, longest {max(values):.1f} s")
    print("\n".join(lines))  # noqa: T201 - the report


if __name__ == "__main__":
    main()
