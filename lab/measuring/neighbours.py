"""Speed next to other programs, in the library and on the page: `python -m lab.measuring.neighbours --out FILE`.

Settings alternate in one process. Each is measured for plain decoding and Jakiro, in the library and through the page's
endpoint, and for llama.cpp on the same file if llama-cpp-python is installed. Run it on a quiet machine; three rounds
take about five minutes.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Annotated

import typer
from gradio_client import Client

from app.serving.limits import Limits
from jakiro.cli.options import option
from jakiro.config import SamplingParams
from jakiro.loading.embedded import EMBEDDED_TARGET
from jakiro.prompts import load_questions
from jakiro.system import num_cores
from lab.commands import Length, Limit, Out, run
from lab.figures import markdown
from lab.measuring.lanes import write_numbers
from lab.measuring.page import Watched, open_page, speed
from lab.peers.llama import LLAMA_CPP, LlamaCppRunner, is_installed

LOOP = [sys.executable, "-S", "-c", "while True: pass"]
# Two threads that wait for each other without sleeping, as in many numeric programs
SPIN = [
    sys.executable, "-c",
    "import torch; torch.set_num_threads(2); a = torch.ones(1 << 17)\nwhile True: a.add_(1)",
]  # fmt: skip
SPINNING = {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "infinite"}
QUIET = "quiet"
# Programs that run in each setting
SETTINGS = {QUIET: [], "one busy loop": [LOOP], "two busy loops": [LOOP, LOOP], "a program that spins": [SPIN]}
METHODS = ("autoregressive", "jakiro")


@contextmanager
def running(commands: list[list[str]]) -> Iterator[None]:
    """Run these programs until the block ends."""
    processes = [subprocess.Popen(command, env=os.environ | SPINNING) for command in commands]
    if SPIN in commands:
        # Until it has imported torch
        time.sleep(4)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def tokens_per_second(traces: list) -> float:
    return sum(len(trace.token_ids) - 1 for trace in traces) / sum(trace.decode_seconds for trace in traces)


def measure(device: Watched, client: Client, peer: LlamaCppRunner | None, length: int, questions: list) -> dict:
    """Return tokens per second by mode, each over the same questions at temperature 0."""
    sampling, speeds = SamplingParams(max_new_tokens=length), {}
    for method in METHODS:
        traces = [device.generator.run(question.turns[0], sampling, method=method) for question in questions]
        speeds[f"library, {method}"] = tokens_per_second(traces)
        events = []
        for question in questions:
            client.predict(question.turns[0], max_new_tokens=length, method=method, api_name="/generate")
            events += device.events
        speeds[f"page, {method}"] = speed(events)
    if peer is not None:
        runs = [peer([{"role": "user", "content": question.turns[0]}], sampling) for question in questions]
        speeds["llama.cpp"] = sum(len(run.token_ids) - 1 for run in runs) / sum(run.seconds for run in runs)
    return speeds


def table(rounds: list[dict[str, dict]]) -> str:
    """Return tokens per second by mode and setting, medians over rounds, with the share of the quiet speed."""
    medians = {
        setting: {mode: median(speeds[setting][mode] for speeds in rounds) for mode in rounds[0][setting]}
        for setting in rounds[0]
    }
    rows = [
        [mode, *(f"{speeds[mode]:.0f} ({100 * speeds[mode] / quiet:.0f} %)" for speeds in medians.values())]
        for mode, quiet in medians[QUIET].items()
    ]
    return markdown(["", *medians], rows)


def main(
    length: Length = 48,
    limit: Limit = 4,
    rounds: Annotated[int, option("Measurements of each setting.")] = 3,
    out: Out = None,
) -> None:
    """Measure speeds next to other programs, in the library and on the page."""
    device = Watched()
    blocks, address = open_page(device, Limits(answers_per_minute=100_000, answers_per_minute_address=100_000))
    client = Client(address, verbose=False)
    device.wait_until_loaded()
    peer = LlamaCppRunner(LLAMA_CPP, EMBEDDED_TARGET, num_cores()) if is_installed() else None
    questions = load_questions(limit=limit)
    measured = []
    for _ in range(rounds):
        measured.append({})
        for setting, commands in SETTINGS.items():
            with running(commands):
                # Warm up: costs are measured and threads are started before the first timed round
                measure(device, client, None, length, questions[:1])
                measured[-1][setting] = measure(device, client, peer, length, questions)
    typer.echo(f"Tokens per second of their own clocks, share of the quiet speed\n\n{table(measured)}")
    write_numbers(out, device.generator.status, rounds=measured)
    blocks.close()


if __name__ == "__main__":
    run(main)
