"""Speed of draft trees against chains of as many nodes, by kind of prompt: `python -m lab.measuring.shapes --out FILE`.

One head drafts all lanes, which alternate at each prompt in one process; their texts must be equal. Run it on a quiet
machine; eight kinds of four prompts at two temperatures take about six minutes.
"""

from collections.abc import Iterable
from statistics import median

import typer

from jakiro import JakiroGenerator
from jakiro.cli.options import Target
from jakiro.config import AUTOMATIC_TREE, ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.system import comma_list
from lab.commands import Length, Limit, Out, Temperatures, run
from lab.figures import markdown
from lab.measuring.lanes import Answer, answer_questions, decoded, write_numbers

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

    def answer(prompt: str, sampling: SamplingParams, lane: str) -> Answer:
        method = PLAIN if lane == "plain" else DEFAULT
        trace = generator.run(prompt, sampling, method.name, LANES[lane])
        return trace, decoded(trace)

    answers = answer_questions(LANES, answer, limit, length, temperatures)
    return [numbers for numbers in answers if numbers["tokens"]]


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


def main(
    target: Target = None, limit: Limit = 32, length: Length = 128, temperatures: Temperatures = "0,1", out: Out = None
) -> None:
    """Measure trees and chains of draft tokens."""
    generator = JakiroGenerator.from_pretrained(target)
    chosen = comma_list("--temperatures", temperatures, float)
    answers = measure(generator, limit, length, chosen)
    for temperature in chosen:
        typer.echo(f"{table(answers, temperature)}\n")
    write_numbers(out, generator.status, answers=answers)


if __name__ == "__main__":
    run(main)
