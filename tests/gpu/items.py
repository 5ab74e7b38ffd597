"""Commands that run one after another within a time limit; results are written after each of them."""

import json
import os
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

DONE, FAILED, TOO_LONG, NO_TIME = "done", "failed", "took too long", "no time left"
# An item with less time than this would only import torch
SHORTEST_SECONDS = 10
LAST_LINES = 14


@dataclass(frozen=True, slots=True)
class Item:
    """One command of a call.

    Attributes:
        name: file name of its log.
        question: question that its result answers.
        command: program and arguments.
        seconds: its time limit.
    """

    name: str
    question: str
    command: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ItemResult:
    """State of a finished item, its duration and the last lines of its log."""

    name: str
    state: str
    seconds: float
    last_lines: str


def run_item(item: Item, folder: Path, limit: float, environment: Mapping[str, str]) -> ItemResult:
    """Run one command and write all its output to a file of its own."""
    start, log = time.perf_counter(), folder / f"{item.name}.log"
    # Without compiled modules every process would spend most of a short call on imports
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("w", encoding="utf-8") as file:
        try:
            status = subprocess.run(
                item.command, stdout=file, stderr=subprocess.STDOUT, timeout=limit, env={**inherited, **environment}
            ).returncode
            state = DONE if status == 0 else FAILED
        except subprocess.TimeoutExpired:
            state = TOO_LONG
        except OSError as error:
            file.write(str(error))
            state = FAILED
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return ItemResult(item.name, state, round(time.perf_counter() - start, 1), "\n".join(lines[-LAST_LINES:]))


def run_items(
    items: Sequence[Item],
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    archive: Path | None = None,
) -> Iterator[ItemResult]:
    """Run items in order; yield each result after the summary and the archive contain it.

    Items that were done in an earlier run with the same folder are not repeated, but yielded. An item gets the rest of
    the time if that is less than its own limit; with less than `SHORTEST_SECONDS` it is not run, and its state is
    `NO_TIME`.

    Args:
        folder: receives logs, results.json and summary.md.
        seconds: time limit of all items together.
        environment: additional environment variables of the commands.
        archive: a .tgz file of the folder, written again after each item; None for none.
    """
    end = time.perf_counter() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.json"
    earlier = [ItemResult(**values) for values in json.loads(file.read_text())] if file.is_file() else []
    results = {result.name: result for result in earlier}
    for item in items:
        if item.name not in results or results[item.name].state != DONE:
            limit = min(item.seconds, end - time.perf_counter())
            enough = limit >= SHORTEST_SECONDS
            result = (
                run_item(item, folder, limit, environment or {}) if enough else ItemResult(item.name, NO_TIME, 0, "")
            )
            results[item.name] = result
        file.write_text(json.dumps([asdict(result) for result in results.values()], indent=1), encoding="utf-8")
        (folder / "summary.md").write_text(summary(items, results), encoding="utf-8")
        if archive is not None:
            with tarfile.open(archive, "w:gz") as packed:
                packed.add(folder, folder.name)
        yield results[item.name]


def summary(items: Sequence[Item], results: Mapping[str, ItemResult]) -> str:
    """Return a Markdown table of all items, followed by the last lines of each log."""
    lines = ["# Results on this device", "", "| Item | State | Seconds | Question |", "| --- | --- | --- | --- |"]
    for item in items:
        result = results.get(item.name)
        state, seconds = (result.state, f"{result.seconds:.0f}") if result else ("not run yet", "")
        lines.append(f"| {item.name} | {state} | {seconds} | {item.question} |")
    for item in items:
        if item.name in results:
            result = results[item.name]
            lines += ["", f"## {item.name}: {result.state}", "", "```", result.last_lines, "```"]
    return "\n".join(lines) + "\n"
