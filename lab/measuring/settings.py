"""Speed under sampling settings and a grammar: `python -m lab.measuring.settings --out FILE`.

Plain decoding and Jakiro alternate at each prompt in one process; their texts must be the same. Run it on a quiet
machine; ten prompts take about four minutes.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from jakiro import JakiroGenerator
from jakiro.bench.environment import environment
from jakiro.config import AUTOMATIC_TREE, Grammar, SamplingParams, TreeConfig
from jakiro.prompts import load_questions
from jakiro.system import write_atomically
from lab.figures import markdown, pooled_speedup

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


def numbers(trace) -> dict:
    """Return the numbers of an answer; the first token is not counted, because the prompt's pass computes it."""
    seconds, tokens = trace.decode_seconds, len(trace.token_ids) - 1
    return {"seconds": round(seconds, 4), "tokens": tokens, "steps": len(trace.steps), "tau": trace.tau}


def measure(generator: JakiroGenerator, length: int, limit: int, tree: TreeConfig) -> dict[str, list[dict]]:
    """Return a list of prompts by setting; each prompt is a dict by method."""
    results = {name: [] for name in SETTINGS}
    for seed, question in enumerate(load_questions(limit=limit)):
        for name, sampling in SETTINGS.items():
            seeded = replace(sampling, max_new_tokens=length, seed=seed)
            prompt = question.turns[0] + (" Answer in JSON." if sampling.grammar else "")
            order = METHODS if seed % 2 == 0 else METHODS[::-1]
            traces = {method: generator.run(prompt, seeded, method, tree) for method in order}
            if len({tuple(trace.token_ids) for trace in traces.values()}) > 1:
                raise RuntimeError(f"The texts of the methods differ for setting {name} and prompt: {prompt}")
            if all(len(trace.token_ids) > 1 for trace in traces.values()):
                results[name].append({method: numbers(trace) for method, trace in traces.items()})
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=96, help="tokens per answer")
    parser.add_argument("--limit", type=int, default=10, help="number of prompts, alternately from all categories")
    parser.add_argument("--nodes", type=int, help="nodes of trees of one size, root included; default: automatic")
    parser.add_argument("--depth", type=int, default=1, help="depth of trees of one size")
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    arguments = parser.parse_args()
    tree = AUTOMATIC_TREE if arguments.nodes is None else TreeConfig(depth=arguments.depth, nodes=arguments.nodes)
    generator = JakiroGenerator.from_pretrained()
    results = measure(generator, arguments.length, arguments.limit, tree)
    sys.stdout.write(f"{table(results)}\n")
    if arguments.out:
        content = {"environment": environment(generator.status), "tree": str(tree), "settings": results}
        write_atomically(arguments.out, json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
