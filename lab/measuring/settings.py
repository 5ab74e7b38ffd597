"""Speed under sampling settings and a grammar: `python -m lab.measuring.settings --out FILE`.

Plain decoding and Jakiro alternate at each prompt in one process; their texts must be the same. Run it on a quiet
machine; ten prompts take about four minutes.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from jakiro import JakiroGenerator
from jakiro.cli.options import option
from jakiro.config import AUTOMATIC_TREE, Grammar, SamplingParams, TreeConfig
from jakiro.prompts import load_questions
from lab.commands import Length, Limit, Out, run
from lab.figures import markdown, pooled_speedup
from lab.measuring.lanes import Answer, alternate, decoded, write_numbers

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "points": {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 5},
        "score": {"type": "integer"},
    },
    "required": ["title", "points", "score"],
    "additionalProperties": False,
}
GRAMMAR = Grammar("json_schema", SCHEMA)
SETTINGS = {
    "nothing": SamplingParams(),
    "makers": SamplingParams(0.7, 0.8, 20, repetition_penalty=1.1),
    "repetition 1.1, T 0": SamplingParams(repetition_penalty=1.1),
    "repetition 1.1, T 1": SamplingParams(1.0, repetition_penalty=1.1),
    "schema, T 0": SamplingParams(grammar=GRAMMAR),
    "schema, T 1": SamplingParams(1.0, grammar=GRAMMAR),
}
METHODS = ("autoregressive", "jakiro")


def measure(generator: JakiroGenerator, length: int, limit: int, tree: TreeConfig) -> dict[str, list[dict]]:
    """Return a list of prompts by setting; each prompt is a dict of numbers by method.

    Raises:
        RuntimeError: the texts of the methods differ.
    """

    def answer(prompt: str, sampling: SamplingParams, method: str) -> Answer:
        trace = generator.run(prompt, sampling, method, tree)
        return trace, decoded(trace) | {"tau": trace.tau}

    results = {name: [] for name in SETTINGS}
    for seed, question in enumerate(load_questions(limit=limit)):
        for name, sampling in SETTINGS.items():
            seeded = replace(sampling, max_new_tokens=length, seed=seed)
            prompt = question.turns[0] + (" Answer in JSON." if sampling.grammar else "")
            by_method = alternate(METHODS, seed, partial(answer, prompt, seeded), {name: prompt})
            if all(numbers["tokens"] for numbers in by_method.values()):
                results[name].append(by_method)
    return results


def table(results: dict[str, list[dict]]) -> str:
    """Return a Markdown table of Jakiro's speed as a multiple of plain decoding's, and its tokens per step.

    Args:
        results: output of `measure`; settings without prompts have no row.
    """
    rows = []
    for name, prompts in results.items():
        pairs = [[prompt[method][key] for method in METHODS for key in ("seconds", "tokens")] for prompt in prompts]
        if pairs:
            tokens, steps = (sum(prompt["jakiro"][key] for prompt in prompts) for key in ("tokens", "steps"))
            rows.append([name, pooled_speedup(pairs), f"{tokens / steps:.2f}"])
    return markdown(["setting", "speed", "tokens per step"], rows)


def main(
    length: Length = 96,
    limit: Limit = 10,
    nodes: Annotated[int | None, option("Nodes of trees of one size, root included; default: automatic.")] = None,
    depth: Annotated[int, option("Depth of trees of one size.")] = 1,
    out: Out = None,
) -> None:
    """Measure plain decoding and Jakiro under sampling settings and a grammar."""
    tree = AUTOMATIC_TREE if nodes is None else TreeConfig(depth=depth, nodes=nodes)
    generator = JakiroGenerator.from_pretrained()
    results = measure(generator, length, limit, tree)
    typer.echo(table(results))
    write_numbers(out, generator.status, tree=str(tree), settings=results)


if __name__ == "__main__":
    run(main)
