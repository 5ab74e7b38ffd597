"""Speed of predicted outputs on code edits: `python -m lab.measuring.prediction --out FILE`.

The prediction of an edit is the code before it. All lanes alternate at every edit in one process, and their texts must
be equal. Ten edits in five rounds take about two minutes.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from jakiro import JakiroGenerator
from jakiro.cli.options import Target, option
from jakiro.config import SamplingParams
from jakiro.drafters.prediction import PROPOSER
from jakiro.trace import Trace
from lab.commands import Length, Out, run
from lab.figures import markdown, pooled_speedup
from lab.measuring.lanes import Answer, alternate, decoded, write_numbers

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

    def answer(edit: Mapping, lane: str) -> Answer:
        method, has_prediction = LANES[lane]
        code = edit["code"] if has_prediction else ""
        trace = generator.run(PROMPT.format_map(edit), sampling, method, prediction=code)
        proposed, accepted = count_predicted(trace)
        return trace, decoded(trace) | {"proposed": proposed, "accepted": accepted}

    results = [{lane: Counter() for lane in LANES} for _ in edits]
    for turn in range(rounds):
        for number, edit in enumerate(edits):
            for lane, numbers in alternate(LANES, turn + number, partial(answer, edit), f"edit {number}").items():
                results[number][lane].update(numbers)
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


def main(
    target: Target = None,
    rounds: Annotated[int, option("Answers of each lane to each edit.")] = 5,
    length: Length = 160,
    temperature: Annotated[float, option("Sampling temperature.")] = 0.0,
    out: Out = None,
) -> None:
    """Measure predicted outputs on ten code edits."""
    generator = JakiroGenerator.from_pretrained(target)
    edits = json.loads(EDITS.read_text(encoding="utf-8"))
    results = measure(generator, edits, SamplingParams(temperature, max_new_tokens=length, seed=1), rounds)
    typer.echo(table(results))
    write_numbers(out, generator.status, rounds=rounds, edits=results)


if __name__ == "__main__":
    run(main)
