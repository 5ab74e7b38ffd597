"""Makes the shipped recordings: plain decoding and Jakiro on the same questions, as one file each in `assets/traces/`.

    python -m app.tools.record [--target … --head … --device … --dtype …]

A recording holds {"title", "why", "traces": traces by method}; the page plays the first by name.
Those that need a certain head are left alone where the command line names a pair.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.page.web import TRACES
from app.tools.record_options import load_generator, read_options
from jakiro.config import SamplingParams, TreeConfig
from jakiro.methods import DEFAULT, PLAIN
from jakiro.trace import Trace, first_difference


def any_step(_: Trace) -> bool:
    return True


def long_paths(trace: Trace) -> bool:
    return max(len(step.accepted_path) for step in trace.steps) >= 3


def both_experts(trace: Trace) -> bool:
    accepted = Counter(step.nodes[index].proposer for step in trace.steps for index in step.accepted_path)
    return min(accepted[expert["id"]] for expert in trace.header.proposers[:2]) >= 0.25 * accepted.total() > 0


def mostly_refused(trace: Trace) -> bool:
    return trace.tau < 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one recording asks, why it is worth seeing, and the rule that holds where that is so.

    `head` names a head of the default target where it must not be the default one.
    """

    name: str
    title: str
    why: str
    question: str
    params: SamplingParams
    tree: TreeConfig
    shows: Callable[[Trace], bool] = any_step
    head: str | None = None


SIZES_ITSELF = TreeConfig(policy="auto", nodes=64, depth=8)

SCENARIOS = (
    Scenario(
        "1-counting",
        "Counting in words",
        "Easy to guess: long accepted paths, the draft at its best.",
        "Count from 1 to 30 in words.",
        SamplingParams(max_new_tokens=128),
        TreeConfig(nodes=24, depth=5),
        long_paths,
    ),
    Scenario(
        "2-sky",
        "Why is the sky blue?",
        "Plain prose: some phrases are guessed several tokens ahead, others not at all.",
        "Why is the sky blue?",
        SamplingParams(max_new_tokens=128),
        TreeConfig(nodes=10, depth=3),
        long_paths,
    ),
    Scenario(
        "3-haiku",
        "A haiku at temperature 1",
        "Sampled text: draft and target share their dice, so the text is still the same.",
        "Write a haiku about rain.",
        SamplingParams(temperature=1.0, seed=1, max_new_tokens=96),
        SIZES_ITSELF,
    ),
    Scenario(
        "4-letters",
        "Random letters",
        "Hard to guess: most candidates are refused, and the page says plainly what that costs.",
        "Write 40 random letters separated by spaces, no words.",
        SamplingParams(temperature=1.0, seed=2, max_new_tokens=96),
        SIZES_ITSELF,
        mostly_refused,
    ),
    Scenario(
        "5-beach",
        "Two experts of equal weight",
        "A decoupled head: every candidate comes from one expert alone, and the text needs both.",
        "What should I pack for a day at the beach?",
        SamplingParams(max_new_tokens=128),
        TreeConfig(nodes=12, depth=4),
        both_experts,
        head="smollm2-135m-instruct-decoupled",
    ),
)


def record(generator, scenario: Scenario) -> dict:
    """Runs one race and returns the recording.

    Raises:
        ValueError: the texts differ, nothing was drafted, or the recording does not show what it is there for.
    """
    messages = [{"role": "user", "content": scenario.question}]
    race = generator.race(messages, scenario.params, methods=(PLAIN.name, DEFAULT.name), tree=scenario.tree)
    for _ in race:
        pass
    plain, drafted = race.traces[PLAIN.name], race.traces[DEFAULT.name]
    if first_difference(plain.token_ids, drafted.token_ids) is not None:
        raise ValueError(f"“{scenario.title}” was not recorded: its two texts differ.")
    if not any(len(step.nodes) > 1 for step in drafted.steps):
        raise ValueError(f"“{scenario.title}” was not recorded: nothing was drafted. Give the scenario a fixed tree.")
    if not scenario.shows(drafted):
        raise ValueError(
            f"“{scenario.title}” was not recorded: with this pair it does not show what it is there for "
            f"({scenario.why}) Change its question or its words in app/tools/record.py."
        )
    return {
        "title": scenario.title,
        "why": scenario.why,
        "traces": {method: trace.to_dict() for method, trace in race.traces.items()},
    }


def write(recording: dict, path: Path) -> None:
    text = json.dumps(_shortened(recording), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _shortened(value):
    """Floats to seven significant digits: more than is ever shown, and half the size."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    pair, folder = read_options("Makes the shipped recordings.", TRACES)
    named = pair["target"] or pair["head"]
    scenarios = [scenario for scenario in SCENARIOS if scenario.head is None or not named]
    heads = {scenario.head for scenario in scenarios}
    try:
        generators = {head: load_generator(pair | {"head": head or pair["head"]}) for head in heads}
        recordings = {scenario.name: record(generators[scenario.head], scenario) for scenario in scenarios}
    except ValueError as error:
        sys.exit(str(error))
    folder.mkdir(parents=True, exist_ok=True)
    for name, recording in recordings.items():
        write(recording, folder / f"{name}.json")


if __name__ == "__main__":
    main()
