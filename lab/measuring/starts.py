"""Start time of the page here: with an empty cache, a warm cache, no compiler, and two pages at once.

`python -m lab.measuring.starts` starts the page of this checkout with separate caches and sends requests over HTTP as
a visitor does, so it does not import the page.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import typer

from jakiro.drafters.registry import DEFAULT
from jakiro.loading.embedded import wheel_path
from jakiro.progress import CAPTURE, STEPS
from lab.commands import run
from tests.server.served import any_port

PAGE = (sys.executable, str(Path(__file__).resolve().parents[2] / "app.py"), "--fixed-model")
QUESTION = "Why is the sky blue?"
MOST_SECONDS = 900
_LOOK_SECONDS = 0.05

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of the process until the page answers and until the model is ready.

    Attributes:
        first_token: seconds from a question to its first token, of the first answer after the start.
        steps: seconds by step of the model's start.
        most_memory: peak memory in bytes.
    """

    page: float
    ready: float
    first_token: float
    steps: dict[str, float]
    most_memory: int | None

    def __str__(self) -> str:
        memory = "" if self.most_memory is None else f", at most {self.most_memory / 1e9:.2f} GB"
        steps = ", ".join(f"{name} {self.steps[name]:.1f}" for name in STEPS if self.steps.get(name, 0) >= 0.05)
        return (
            f"page answers after {self.page:.1f} s, model ready after {self.ready:.1f} s, first token "
            f"{self.first_token:.2f} s after the question{memory}" + (f" ({steps} s)" if steps else "")
        )


def _provide(cache: Path) -> None:
    """Copy the model's file into an empty cache, if this machine has it."""
    wheel = wheel_path()
    copy = cache / "wheels" / wheel.name
    if wheel.is_file() and not copy.is_file():
        copy.parent.mkdir(parents=True)
        shutil.copyfile(wheel, copy)


def started(environment: dict[str, str]) -> Start:
    """Start the page in its own process, ask one question and stop the process.

    Args:
        environment: additional environment variables.

    Raises:
        OSError: the process ended by itself, its model could not be loaded, or it took longer than `MOST_SECONDS`.
    """
    port = any_port()
    address = f"http://127.0.0.1:{port}"
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*PAGE, "--host", "127.0.0.1", "--port", str(port)],
            env=os.environ | environment, stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip

        def alive() -> None:
            if process.poll() is not None or time.perf_counter() - begin > MOST_SECONDS:
                said.seek(0)
                last = said.read().decode(errors="replace").strip().splitlines()[-1:]
                raise ConnectionError(f"the page did not start: {' '.join(last) or 'no output'}")

        try:
            _until(lambda: _get(f"{address}/"), alive)
            page = time.perf_counter() - begin
            status = _until(lambda: _settled(address), alive)
            ready = time.perf_counter() - begin
            if status["state"] != "ready":
                raise ConnectionError("the page could not load its model")
            first_token = _first_token(address)
            status = json.loads(_get(f"{address}/status"))
        finally:
            process.terminate()
            process.wait()
    steps = {name: seconds for name, seconds in status["seconds"].items() if name in STEPS and name != CAPTURE}
    return Start(page, ready, first_token, steps, status["most_memory"])


def _until(work: Callable[[], T | None], alive: Callable[[], None]) -> T:
    """Return the first result that is not None; call again while nothing answers."""
    while True:
        alive()
        try:
            result = work()
            if result is not None:
                return result
        except (OSError, ValueError):
            pass
        time.sleep(_LOOK_SECONDS)


def _settled(address: str) -> dict | None:
    status = json.loads(_get(f"{address}/status"))
    return status if status["state"] in ("ready", "failed") else None


def _first_token(address: str) -> float:
    """Return the seconds from a question until its first text arrives."""
    begin = time.perf_counter()
    body = json.dumps({"data": [QUESTION, 8, 0.0, 1.0, 0, 0, DEFAULT.name, "", []]}).encode()
    request = urllib.request.Request(f"{address}/gradio_api/call/generate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        event = json.load(reply)["event_id"]
    with urllib.request.urlopen(f"{address}/gradio_api/call/generate/{event}", timeout=60) as lines:
        for line in lines:
            if line.startswith(b"data:") and (update := json.loads(line[5:])) and update[0].get("text"):
                return time.perf_counter() - begin
    raise ConnectionError("the page did not answer")


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=10) as reply:
        return reply.read()


def main() -> None:
    """Measure starts of the page with an empty cache, a warm cache, no compiler, and two pages at once."""
    with tempfile.TemporaryDirectory(prefix="jakiro-start-") as folder:
        nothing = Path(folder) / "nothing"
        nothing.mkdir()
        without_compiler = {"PATH": str(nothing), "CC": ""}
        for about, cache, environment, pages in (
            ("empty cache", "first", {}, 1),
            ("the same cache again", "first", {}, 1),
            ("empty cache, no C compiler on the path", "second", without_compiler, 1),
            ("two at once, one empty cache", "third", {}, 2),
        ):
            path = Path(folder) / cache
            _provide(path)
            with ThreadPoolExecutor(pages) as threads:
                for start in threads.map(started, [environment | {"JAKIRO_CACHE": str(path)}] * pages):
                    typer.echo(f"{about}: {start}")


if __name__ == "__main__":
    run(main)
