"""Speedup with layers on disk: `python -m lab.measuring.offload --out FILE`; `--figure FILE.png` draws the result.

Every pass reads the layers from disk. Because the page cache hides a disk's speed, each layer on disk also sleeps for a
fixed, stated time. An answer takes the processor time of its thread plus layers × delay for each pass, so other load on
the machine does not count, and speedups at other delays are computed from the same answers. Lanes take turns on each
prompt and must write the same text.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import torch
import typer
from plotly.graph_objects import Figure, Scatter

from jakiro import JakiroGenerator
from jakiro.bench.report import bootstrap_interval
from jakiro.cli.options import Target, option
from jakiro.config import SamplingParams, TreeConfig
from jakiro.system import comma_list
from lab.commands import Length, Limit, Temperatures, run
from lab.figures import brackets, markdown
from lab.measuring.lanes import Answer, answer_questions, write_numbers

PLAIN = "autoregressive"
# Method and tree by lane; None lets measured pass costs choose the tree
LANES = {
    PLAIN: (PLAIN, None),
    "jakiro, 24 nodes": ("jakiro", TreeConfig(nodes=24)),
    "jakiro, 64 nodes": ("jakiro", TreeConfig(nodes=64, depth=8)),
    "jakiro, 256 nodes": ("jakiro", TreeConfig(nodes=256, depth=8)),
    "jakiro+prompt_lookup, automatic": ("jakiro+prompt_lookup", None),
}
# Seconds that each layer takes to read, for the figure
DELAYS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


def slow_layers(generator: JakiroGenerator, delay: float) -> int:
    """Let each layer on disk sleep before it runs; return the number of these layers."""
    model = generator.target.model
    names = [name for name, device in model.hf_device_map.items() if device == "disk"]
    for name in names:
        model.get_submodule(name).register_forward_pre_hook(lambda *_: time.sleep(delay))
    return len(names)


def measure(generator: JakiroGenerator, limit: int, tokens: int, temperatures: list[float]) -> list[dict]:
    """Return every lane's seconds of processor time, passes, tokens and τ on every prompt.

    Raises:
        RuntimeError: the texts of two lanes differ.
    """

    def answer(prompt: str, sampling: SamplingParams, lane: str) -> Answer:
        method, tree = LANES[lane]
        stream = generator.stream(prompt, sampling, method, tree)
        start = time.process_time()
        for _ in stream:
            pass
        seconds, trace = time.process_time() - start, stream.trace
        numbers = {"seconds": seconds, "passes": len(trace.steps), "tau": trace.tau}
        numbers |= {"tokens": len(trace.token_ids) - 1, "nodes": max(len(step.nodes) for step in trace.steps)}
        typer.echo(f"{lane}: {json.dumps(numbers)}", err=True)
        return trace, numbers

    return answer_questions(LANES, answer, limit, tokens, temperatures)


def speedup(data: Mapping, lane: str, temperature: float, delay: float) -> dict:
    """Return a lane's speed and speedup if each layer on disk takes this many seconds to read."""

    def totals(name: str) -> list[tuple[float, float, int]]:
        extra = delay * data["layers"]
        chosen = [row for row in data["answers"] if (row["lane"], row["temperature"]) == (name, temperature)]
        return [(row["seconds"] + extra * row["passes"], row["tokens"], row["passes"]) for row in chosen]

    plain, drafted = totals(PLAIN), totals(lane)
    pairs = [(base[0], base[1], own[0], own[1]) for base, own in zip(plain, drafted, strict=True)]
    sums = [sum(column) for column in zip(*pairs, strict=True)]
    return {
        "plain_pass_seconds": sums[0] / sum(passes for *_, passes in plain),
        "tokens_per_second": sums[3] / sums[2],
        "speedup": sums[0] / sums[1] / (sums[2] / sums[3]),
        "interval": bootstrap_interval(pairs),
        "tau": sums[3] / sum(passes for *_, passes in drafted),
    }


def table(data: Mapping) -> str:
    """Return the measured speeds as a Markdown table."""
    rows = []
    for temperature in dict.fromkeys(answer["temperature"] for answer in data["answers"]):
        for lane in LANES:
            numbers = speedup(data, lane, temperature, data["delay"])
            speeds = [f"{numbers['tokens_per_second']:.2f}", f"{numbers['speedup']:.2f}×"]
            interval = brackets(numbers["interval"]).strip() or "–"
            rows.append([lane, f"{temperature:g}", *speeds, interval, f"{numbers['tau']:.2f}"])
    return markdown(["", "T", "tokens/s", "speedup", "95 %", "tokens a pass"], rows)


def figure(data: Mapping, temperature: float = 0.0) -> Figure:
    """Return the speedup of each lane against the seconds of a plain pass."""
    drawn = Figure(layout={"title": f"Layers on disk, temperature {temperature:g}", "template": "simple_white"})
    for lane in [name for name in LANES if name != PLAIN]:
        points = [speedup(data, lane, temperature, delay) for delay in DELAYS]
        line = [(point["plain_pass_seconds"], point["speedup"]) for point in points]
        x, y = zip(*line, strict=True)
        drawn.add_trace(Scatter(x=x, y=y, name=lane, mode="lines+markers"))
    drawn.update_xaxes(title="seconds of a plain pass", type="log", dtick="D2")
    return drawn.update_yaxes(title="speedup over plain decoding", rangemode="tozero")


def main(
    out: Annotated[Path, option("Raw data; with --figure it is read.")],
    figure_path: Annotated[Path | None, option("Draw this picture of the raw data.", "--figure")] = None,
    target: Target = None,
    max_memory: Annotated[str, option("Memory that holds only the embeddings.")] = "cpu:130MB",
    delay: Annotated[float, option("Seconds that each layer on disk sleeps.")] = 0.01,
    limit: Limit = 8,
    tokens: Length = 24,
    temperatures: Temperatures = "0,1",
) -> None:
    """Measure the speedup with layers on disk, or draw the result."""
    if figure_path is None:
        # Processor time is that of one thread
        torch.set_num_threads(1)
        generator = JakiroGenerator.from_pretrained(target, device="auto", max_memory=max_memory)
        layers = slow_layers(generator, delay)
        answers = measure(generator, limit, tokens, comma_list("--temperatures", temperatures, float))
        names = {"target": generator.target.name, "head": generator.head["name"]}
        write_numbers(out, generator.status, **names, layers=layers, delay=delay, answers=answers)
    data = json.loads(out.read_text(encoding="utf-8"))
    typer.echo(table(data))
    if figure_path is not None:
        figure(data).write_image(figure_path, width=760, height=420, scale=2)


if __name__ == "__main__":
    run(main)
