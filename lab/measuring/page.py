"""The costs of watching on this machine, each with its goal: `python -m lab.measuring.page`.

Page, model and browser share the machine's cores. Run it on a quiet machine; it takes about five minutes. The exit
status is 1 if a goal was missed.
"""

import operator
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import gradio as gr
import typer
from playwright.sync_api import sync_playwright

from app.devices.base import Event
from app.devices.local import LocalDevice
from app.page import build as page
from app.serving.limits import Limits
from app.words import page as words
from jakiro import JakiroGenerator
from jakiro.cli.options import option
from jakiro.config import SamplingParams, TreeConfig
from lab.commands import Length, run
from tests.app.conftest import BROWSERS, FLAGS

GOALS = {
    "drawn updates/s": (operator.ge, 4, "≥ 4"),
    "drawn updates/s, recorded": (operator.ge, 10, "≥ 10"),
    "frames/s, recorded": (operator.ge, 30, "≥ 30"),
    "lag at the end, s": (operator.lt, 1, "< 1"),
    "bytes per update": (operator.le, 6144, "≤ 6144"),
    "speed watched, % of unwatched": (operator.ge, 85, "≥ 85"),
    "server cost, % of unwatched": (operator.lt, 5, "< 5"),
}
QUESTION = "Write a long story about a lighthouse keeper, with as many details as you can."
TREE = {"candidates": 23, "levels": 5}
RECORDED_STEP_SECONDS = 0.03
COUNT_FRAMES = """() => { window.frames = 0; window.longest = 0; let last = performance.now();
  const count = now => { window.frames += 1; window.longest = Math.max(window.longest, now - last); last = now;
    requestAnimationFrame(count); }; requestAnimationFrame(count); }"""
DRAIN = """import json, sys, urllib.request, uuid
address, question, length, tree = sys.argv[1:5]
def get(path, data=None):
    body = None if data is None else json.dumps(data).encode()
    return urllib.request.urlopen(urllib.request.Request(address + path, body, {"Content-Type": "application/json"}))
config, session = json.load(get("config")), uuid.uuid4().hex
asked = next(each["id"] for each in config["dependencies"] if each["api_name"] == "ask")
form = {each["props"].get("elem_id"): each["props"].get("value") for each in config["components"]}
sent = {name: form[name] for name in ("method", "numerics", "temperature", "seed")} | {
    "question": question, "length": int(length), "tree": tree, "candidates": 23, "levels": 5, "alongside": False,
    "further-lanes": [], "system-prompt": "", "history": []}
get("gradio_api/queue/join", {"data": [], "fn_index": asked, "session_hash": session, "event_data": sent}).read()
count = 0
for line in get("gradio_api/queue/data?session_hash=" + session):
    count += b"process_generating" in line
    if b"process_completed" in line:
        break
print(count)
"""


class Watched(LocalDevice):
    """A local device with the default pair that stores the time of its last event and the duration of the answer."""

    last_event = seconds = 0.0
    events: list[Event]

    def __init__(self) -> None:
        super().__init__(JakiroGenerator.from_pretrained)

    def wait_until_loaded(self) -> None:
        """Wait until the page has loaded the model and measured the costs of its passes."""
        while self.generator is None:
            time.sleep(0.5)

    def answer(self, asking, halt, prefixes=None) -> Iterator[Event]:
        self.events, start = [], time.time()
        for event in super().answer(asking, halt, prefixes):
            self.events.append(event)
            self.last_event = time.time()
            yield event
        self.seconds = self.last_event - start


class Recorded:
    """A device that repeats the events of an answer at a steady pace and computes nothing."""

    places, costs, metered = 1, None, False

    def __init__(self, events: list[Event], status: dict) -> None:
        self.events, self.status, self.last_event = events, status, 0.0

    def load(self, report) -> None:
        return None

    def answer(self, asking, halt: threading.Event, prefixes=None) -> Iterator[Event]:
        for event in self.events:
            time.sleep(RECORDED_STEP_SECONDS if event[0] == "step" else 0)
            self.last_event = time.time()
            yield event

    def close(self) -> None:
        return None


def speed(events: list[Event]) -> float:
    """Return tokens after the first ÷ decode seconds of the answer with these events."""
    steps = [payload for kind, _, payload in events if kind == "step"]
    return sum(len(step.committed_ids) for step in steps) / sum(step.total_ms for step in steps) * 1000


def watch(browser, address: str, device, length: int, frames: bool) -> dict:
    """Ask a question in a browser and measure what it draws; return numbers by name.

    Args:
        frames: also count frames, which makes the browser draw at its full rate and so slows down the model.
    """
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    tab = context.new_page()
    received = []
    network = context.new_cdp_session(tab)
    network.send("Network.enable")
    network.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
    tab.goto(address)
    tab.wait_for_selector("#jk-chip.ready", timeout=300_000)
    tab.click("#jk-settings")
    tab.get_by_label("Fixed").check()
    tab.get_by_label(words.ALONGSIDE).uncheck()
    tab.fill("#length input", str(length))
    for name, value in TREE.items():
        tab.fill(f"#{name} input", str(value))
    tab.keyboard.press("Tab")
    tab.click("#close-settings")
    tab.fill("#question textarea", QUESTION)
    tab.click("#ask")
    tab.wait_for_function("() => /^[0-9a-f]{32}$/.test(document.querySelector('.jk-view').dataset.run)", timeout=60_000)
    if frames:
        tab.evaluate(COUNT_FRAMES)
    received.clear()
    ticks = tab.evaluate("Jakiro.moves.state.run.ticks")
    before, start = int(tab.get_attribute(".jk-view", "data-drawn")), time.time()
    tab.wait_for_selector('.jk-view[data-finished="true"]', timeout=400_000)
    end = time.time()
    now = tab.evaluate("Jakiro.moves.state.run.ticks")
    counted = tab.evaluate("() => ({frames, longest})") if frames else None
    num_drawn = int(tab.get_attribute(".jk-view", "data-drawn")) - before
    context.close()
    numbers = {
        "drawn updates/s": num_drawn / (end - start),
        "bytes per update": sum(received) / max(1, now - ticks),
        "lag at the end, s": end - device.last_event,
    }
    if counted:
        numbers |= {"frames/s": counted["frames"] / (end - start), "longest frame, ms": counted["longest"]}
    return numbers


def drain(address: str, length: int) -> int:
    """Read all updates in a separate program; return their number."""
    command = [sys.executable, "-c", DRAIN, address, QUESTION, str(length), words.FIXED]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def decode_without_page(generator: JakiroGenerator, length: int) -> list[Event]:
    """Return the steps of the same answer as events, decoded without server and browser.

    It runs in a thread that ends, like answers of the page: OpenMP keeps workers for every living thread, and with more
    workers than cores none of them waits at barriers any more, which costs a fifth of the speed.
    """
    tree = TreeConfig(nodes=TREE["candidates"] + 1, depth=TREE["levels"], policy="fixed")
    with ThreadPoolExecutor(1) as thread:
        trace = thread.submit(generator.run, QUESTION, SamplingParams(max_new_tokens=length), tree=tree).result()
    return [("step", "jakiro", step) for step in trace.steps]


def show(title: str, numbers: dict[str, float]) -> bool:
    """Print numbers with their goals; return whether all goals were reached."""
    reached, lines = [], []
    for name, value in numbers.items():
        meets, bound, goal = GOALS.get(name, (None, None, ""))
        if meets:
            reached.append(meets(value, bound))
        verdict = f"{goal:>10}  {'yes' if reached[-1] else 'NO'}" if meets else ""
        lines.append(f"  {name:<28}{value:>10.2f}{verdict}".rstrip())
    typer.echo("\n".join(["", title, *lines]))
    return all(reached)


def typical(rounds: list[dict]) -> dict:
    """Return medians over rounds, but the longest lag at the end."""
    return {
        name: (max if name.startswith("lag") else statistics.median)([numbers[name] for numbers in rounds])
        for name in rounds[0]
    }


def open_page(device, limits: Limits | None = None) -> tuple[gr.Blocks, str]:
    """Serve a page with this device; return it and its address."""
    blocks = page.build(device, limits)
    return blocks, page.launch(blocks, host="127.0.0.1", wait=False, quiet=True)


def main(
    length: Length = 900,
    rounds: Annotated[int, option("Number of measurements of each mode, interleaved.")] = 2,
) -> None:
    """Measure the costs of watching; 900 tokens are about 500 steps."""
    device = Watched()
    blocks, address = open_page(device)
    device.wait_until_loaded()
    live, speeds = [], {"alone": [], "drained": [], "watched": []}
    path = next(executable for name in BROWSERS if (executable := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        for _ in range(rounds):
            speeds["alone"].append(speed(decode_without_page(device.generator, length)))
            drain(address, length)
            speeds["drained"].append(speed(device.events))
            live.append(watch(browser, address, device, length, frames=False))
            speeds["watched"].append(speed(device.events))
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        share = {name: 100 * value / medians["alone"] for name, value in medians.items()}
        steps = sum(kind == "step" for kind, _, _ in device.events)
        together = typical(live) | {"speed watched, % of unwatched": share["watched"]}
        reached = [show(f"Model, page and browser on the same cores, {steps} steps", together)]
        reached.append(
            show("A program that reads the same updates", {"server cost, % of unwatched": 100 - share["drained"]})
        )
        show("Tokens/s, own clock", medians)
        blocks.close()
        # As on a GPU: the page sends at its full rate if the model does not use the same cores
        recorded = Recorded(device.events, device.status | {"device": "cuda"})
        blocks, address = open_page(recorded)
        fed = watch(browser, address, recorded, length, frames=True)
        fed = {f"{name}, recorded": value for name, value in fed.items()}
        reached.append(show(f"Browser fed with recorded steps, one every {1000 * RECORDED_STEP_SECONDS:.0f} ms", fed))
        blocks.close()
        browser.close()
    if not all(reached):
        sys.exit(1)


if __name__ == "__main__":
    run(main)
