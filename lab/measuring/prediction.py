"""Speed of predicted outputs on code edits: `python -m lab.measuring.prediction --out FILE`.

The prediction of an edit is the code before it. All lanes alternate at every edit in one process, and their texts must
be equal. Ten edits in five rounds take about two minutes.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from jakiro import JakiroGenerator
from jakiro.bench.environment import environment
from jakiro.config import SamplingParams
from jakiro.drafters.prediction import PROPOSER
from jakiro.system import write_atomically
from jakiro.trace import Trace
from lab.figures import markdown, pooled_speedup
from lab.measuring.lanes import rotated

EDITS = Path(__file__).resolve().parent.parent / "assets" / "edits.json"
PROMPT = "{instruction} Write the whole code again, with no other change.\n\n```\n{code}\n```"
# Method of each lane, and whether it has the prediction
LANES = {
    "plain": ("autoregressive", False),
    "jakiro": ("jakiro", False),
    "jakiro, prediction": ("jakiro", True),
    "prompt_lookup": ("prompt_lookup", False),
    "prompt_lookup, prediction": ("prompt_lookup", True),
    "jakiro+prompt_lookup": ("jakiro+prompt_lookup", False),
}
BASES = ("plain", "jakiro", "prompt_lookup", "jakiro+prompt_lookup")


def count_predicted(trace: Trace) -> tuple[int, int]:
    """Return the number of tokens that the prediction proposed, and how many of them were accepted."""
    proposed = accepted = 0
    for step in trace.steps:
        for index, node in enumerate(step.nodes[1:], 1):
            if PROPOSER in (node.proposer, *node.also_proposed_by):
                proposed += 1
                accepted += index in step.accepted_path
    return proposed, accepted


def measure(
    generator: JakiroGenerator, edits: Sequence[Mapping], sampling: SamplingParams, rounds: int
) -> list[dict[str, dict]]:
    """Return, for each edit, the sums over all rounds of each lane.

    Raises:
        RuntimeError: the texts of two lanes differ.
    """
    results = [{lane: Counter() for lane in LANES} for _ in edits]
    for turn in range(rounds):
        for number, edit in enumerate(edits):
            texts = set()
            for lane in rotated(LANES, turn + number):
                method, has_prediction = LANES[lane]
                code = edit["code"] if has_prediction else ""
                trace = generator.run(PROMPT.format_map(edit), sampling, method, prediction=code)
                texts.add(trace.text)
                proposed, accepted = count_predicted(trace)
                # The prefill computes the first token
                results[number][lane].update(
                    seconds=trace.decode_seconds, tokens=len(trace.token_ids) - 1, steps=len(trace.steps),
                    proposed=proposed, accepted=accepted,
                )  # fmt: skip
            if len(texts) > 1:
                raise RuntimeError(f"The texts of the lanes differ: {edit['instruction']}")
    return results


def compare(results: Sequence[Mapping[str, Mapping]], lane: str, base: str) -> str:
    """Return the pooled speedup of a lane over another one, with its interval over the edits."""
    return pooled_speedup(
        [[edit[name][key] for name in (base, lane) for key in ("seconds", "tokens")] for edit in results]
    )


def table(results: Sequence[Mapping[str, Mapping]]) -> str:
    """Return a Markdown table: one row per lane, its speed and its speedup over each base."""
    rows = []
    for lane in LANES:
        sums = {name: sum(edit[lane][name] for edit in results) for name in results[0][lane]}
        accepted = f"{sums['accepted']} of {sums['proposed']}" if sums["proposed"] else "–"
        speeds = [f"{sums['tokens'] / sums['seconds']:.1f}", f"{sums['tokens'] / sums['steps']:.2f}"]
        rows.append(
            [lane, *speeds, accepted, *("–" if lane == base else compare(results, lane, base) for base in BASES)]
        )
    columns = ["lane", "tokens/s", "tokens/step", "predicted tokens accepted", *(f"over {base}" for base in BASES)]
    return markdown(columns, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure predicted outputs on ten code edits.")
    parser.add_argument("--target", help="target model")
    parser.add_argument("--rounds", type=int, default=5, help="answers of each lane to each edit")
    parser.add_argument("--length", type=int, default=160, help="tokens of an answer")
    parser.add_argument("--temperature", type=float, default=0.0, help="sampling temperature")
    parser.add_argument("--out", type=Path, help="JSON file for all numbers")
    arguments = parser.parse_args()
    generator = JakiroGenerator.from_pretrained(arguments.target)
    edits = json.loads(EDITS.read_text(encoding="utf-8"))
    sampling = SamplingParams(arguments.temperature, max_new_tokens=arguments.length, seed=1)
    results = measure(generator, edits, sampling, arguments.rounds)
    sys.stdout.write(f"{table(results)}\n")
    if arguments.out:
        content = {"environment": environment(generator.status), "rounds": arguments.rounds, "edits": results}
        write_atomically(arguments.out, json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
