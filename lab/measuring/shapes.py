"""Speed of draft trees against chains of as many nodes, by kind of prompt: `python -m lab.measuring.shapes --out FILE`.

One head drafts all lanes, which alternate at each prompt in one process; their texts must be equal. Run it on a quiet
machine; eight kinds of four prompts at two temperatures take about six minutes.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from jakiro import JakiroGenerator
from jakiro.bench.environment import environment
from jakiro.config import AUTOMATIC_TREE, ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.prompts import load_questions
from jakiro.system import write_atomically
from lab.figures import markdown
from lab.measuring.lanes import rotated

LANES = {
    "plain": ROOT_ONLY,
    "chain, 4 nodes": TreeConfig(width=1, depth=3, nodes=4),
    "tree, 4 nodes": TreeConfig(depth=3, nodes=4),
    "chain, 8 nodes": TreeConfig(width=1, depth=7, nodes=8),
    "tree, 8 nodes": TreeConfig(depth=7, nodes=8),
    "automatic chain": TreeConfig(policy="auto", width=1, depth=8, nodes=9),
    "automatic tree": AUTOMATIC_TREE,
}
ALL = "all"


def measure(generator: JakiroGenerator, limit: int, length: int, temperatures: Iterable[float]) -> list[dict]:
    """Return seconds, tokens and steps of each lane's answer to each prompt at each temperature.

    Raises:
        RuntimeError: the texts of two lanes differ.
    """
    answers = []
    for number, question in enumerate(load_questions(limit=limit)):
        for temperature in temperatures:
            sampling, texts = SamplingParams(temperature, seed=number, max_new_tokens=length), set()
            for lane in rotated(LANES, number):
                method = PLAIN if lane == "plain" else DEFAULT
                trace = generator.run(question.turns[0], sampling, method.name, LANES[lane])
                texts.add(trace.text)
                place = {"prompt": number, "category": question.category, "temperature": temperature, "lane": lane}
                # The prefill computes the first token
                counts = {"tokens": len(trace.token_ids) - 1, "steps": len(trace.steps)}
                answers.append(place | {"seconds": trace.decode_seconds} | counts)
            if len(texts) > 1:
                raise RuntimeError(f"The texts of the lanes differ at temperature {temperature}: {question.turns[0]}")
    return [answer for answer in answers if answer["tokens"]]


def table(answers: list[dict], temperature: float) -> str:
    """Return a Markdown table: tokens per step by kind of prompt, and the median time of a step.

    The last row is the speedup with these times, which an interruption of single answers does not change.
    """
    chosen = [answer for answer in answers if answer["temperature"] == temperature]
    by_lane = {lane: [answer for answer in chosen if answer["lane"] == lane] for lane in LANES}
    tokens = {
        category: {lane: tokens_per_step(rows, category) for lane, rows in by_lane.items()}
        for category in (*dict.fromkeys(answer["category"] for answer in chosen), ALL)
    }
    step_ms = {lane: median(1000 * row["seconds"] / row["steps"] for row in rows) for lane, rows in by_lane.items()}
    plain_ms = step_ms["plain"]
    rows = [[name, *(f"{value:.2f}" for value in by_lane.values())] for name, by_lane in tokens.items()]
    rows.append(["ms per step", *(f"{value:.1f}" for value in step_ms.values())])
    rows.append(["speedup", *(f"{tokens[ALL][lane] * plain_ms / value:.2f}" for lane, value in step_ms.items())])
    return f"Temperature {temperature:g}: tokens per step.\n\n{markdown(['', *LANES], rows)}"


def tokens_per_step(answers: list[dict], category: str) -> float:
    rows = [answer for answer in answers if category in (ALL, answer["category"])]
    return sum(row["tokens"] for row in rows) / sum(row["steps"] for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure trees and chains of draft tokens.")
    parser.add_argument("--target", help="target model")
    parser.add_argument("--limit", type=int, default=32, help="prompts, from all kinds in turn")
    parser.add_argument("--length", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--temperatures", default="0,1", help="comma list")
    parser.add_argument("--out", type=Path, help="JSON file for all numbers")
    arguments = parser.parse_args()
    generator = JakiroGenerator.from_pretrained(arguments.target)
    temperatures = [float(part) for part in arguments.temperatures.split(",")]
    answers = measure(generator, arguments.limit, arguments.length, temperatures)
    for temperature in temperatures:
        sys.stdout.write(f"{table(answers, temperature)}\n\n")
    if arguments.out:
        content = {"environment": environment(generator.status), "answers": answers}
        write_atomically(arguments.out, json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
