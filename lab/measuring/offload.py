"""Speedup with layers on disk: `python -m lab.measuring.offload --out FILE`; `--figure FILE.png` draws the result.

Every pass reads the layers from disk. Because the page cache hides a disk's speed, each layer on disk also sleeps for a
fixed, stated time. An answer takes the processor time of its thread plus layers × delay for each pass, so other load on
the machine does not count, and speedups at other delays are computed from the same answers. Lanes take turns on each
prompt and must write the same text.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from plotly.graph_objects import Figure, Scatter

from jakiro import JakiroGenerator
from jakiro.bench.environment import environment
from jakiro.bench.report import bootstrap_interval
from jakiro.config import SamplingParams, TreeConfig
from jakiro.prompts import load_questions
from jakiro.system import write_atomically
from lab.measuring.lanes import rotated

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
    answers = []
    for number, question in enumerate(load_questions(limit=limit)):
        for temperature in temperatures:
            sampling, texts = SamplingParams(temperature, seed=number, max_new_tokens=tokens), set()
            for lane in rotated(LANES, number):
                method, tree = LANES[lane]
                stream = generator.stream(question.turns[0], sampling, method, tree)
                start = time.process_time()
                for _ in stream:
                    pass
                seconds, trace = time.process_time() - start, stream.trace
                texts.add(tuple(trace.token_ids))
                numbers = {"seconds": seconds, "passes": len(trace.steps), "tau": trace.tau}
                numbers |= {"tokens": len(trace.token_ids) - 1, "nodes": max(len(step.nodes) for step in trace.steps)}
                answers.append({"prompt": number, "temperature": temperature, "lane": lane} | numbers)
                sys.stderr.write(f"{json.dumps(answers[-1])}\n")
            if len(texts) > 1:
                raise RuntimeError(f"The texts of the lanes differ at temperature {temperature}: {question.turns[0]}")
    return answers


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
    lines = ["| | T | tokens/s | speedup | 95 % | tokens a pass |", "| --- | --- | --- | --- | --- | --- |"]
    for temperature in dict.fromkeys(answer["temperature"] for answer in data["answers"]):
        for lane in LANES:
            numbers = speedup(data, lane, temperature, data["delay"])
            interval = "–" if numbers["interval"] is None else "[{:.2f}, {:.2f}]".format(*numbers["interval"])
            cells = [lane, f"{temperature:g}", f"{numbers['tokens_per_second']:.2f}", f"{numbers['speedup']:.2f}×"]
            cells += [interval, f"{numbers['tau']:.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="Raw data; with --figure it is read.")
    parser.add_argument("--figure", type=Path, help="Draw this picture of the raw data.")
    parser.add_argument("--target", help="Default: the default pair.")
    parser.add_argument("--max-memory", default="cpu:130MB", help="Memory that holds only the embeddings.")
    parser.add_argument("--delay", type=float, default=0.01, help="Seconds that each layer on disk sleeps.")
    parser.add_argument("--limit", type=int, default=8, help="Prompts.")
    parser.add_argument("--tokens", type=int, default=24, help="Tokens of an answer.")
    parser.add_argument("--temperatures", default="0,1", help="Comma list.")
    arguments = parser.parse_args()
    if arguments.figure:
        data = json.loads(arguments.out.read_text(encoding="utf-8"))
        sys.stdout.write(table(data) + "\n")
        figure(data).write_image(arguments.figure, width=760, height=420, scale=2)
        return
    # Processor time is that of one thread
    torch.set_num_threads(1)
    generator = JakiroGenerator.from_pretrained(arguments.target, device="auto", max_memory=arguments.max_memory)
    layers = slow_layers(generator, arguments.delay)
    temperatures = [float(part) for part in arguments.temperatures.split(",")]
    answers = measure(generator, arguments.limit, arguments.tokens, temperatures)
    names = {"target": generator.target.name, "head": generator.head["name"]}
    data = names | {
        "layers": layers,
        "delay": arguments.delay,
        "environment": environment(generator.status),
        "answers": answers,
    }
    write_atomically(arguments.out, json.dumps(data, indent=1) + "\n")
    sys.stdout.write(table(data) + "\n")


if __name__ == "__main__":
    main()
