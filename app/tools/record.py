"""Make the shipped recordings: plain decoding and Jakiro on the same questions, as one file each in `assets/traces/`.

    python -m app.tools.record [--target … --head … --device … --dtype …]

A recording has {"title", "why", "traces": traces by method}; the page opens with the first by name. Each is a complete
answer. A scenario tries its questions in turn and keeps the first answer that satisfies its rule; title and caption
state measurements. Scenarios that need a certain head are omitted if the command line names a pair.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from app.page.benchmark import RECORDED
from app.page.web import TRACES
from app.tools.figures import Figures, figures_of
from app.tools.record_options import load_generator, read_options
from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.prompts import load_questions
from jakiro.system import errors_as_one_sentence
from jakiro.trace import first_difference


@dataclass(frozen=True, slots=True)
class Scenario:
    """The questions of one recording, and the rule for a recording that is worth seeing.

    Attributes:
        questions: tried in turn until the rule is satisfied.
        why: the caption, completed with the fields of `Figures`.
        rule: a test of the figures; `requirement` describes it in words.
        head: a head of the default target, if not the default one.
    """

    name: str
    questions: tuple[str, ...]
    why: str
    requirement: str
    rule: Callable[[Figures], bool]
    params: SamplingParams
    tree: TreeConfig
    head: str | None = None


SIZES_ITSELF = TreeConfig(policy="auto", nodes=64, depth=8)
LARGE = TreeConfig(nodes=32, depth=6)
GREEDY = SamplingParams(max_new_tokens=512, record_alternatives=True)
OPENING_STEPS = 3


def benchmark_speedups() -> dict[str, float]:
    """Return the speedup of Jakiro in the recorded benchmark by kind of prompt, greedy."""
    groups = json.loads(RECORDED.read_text(encoding="utf-8"))["groups"]
    rows = [group for group in groups if group["lane"].split(" · ")[0] == DEFAULT.name and group["temperature"] == 0]
    return {group["category"]: group["speedup"] for group in rows}


def scenarios(speedups: dict[str, float]) -> tuple[Scenario, ...]:
    """Return all recordings in display order; some rules use the speedups of the benchmark."""
    overall = speedups["overall"]
    slowest = min(speedups, key=speedups.get)
    return (
        Scenario(
            "1-opening",
            (
                "What is photosynthesis?",
                "How do plants make food?",
                "What is a volcano?",
                "What is gravity?",
                "What are the benefits of walking every day?",
            ),
            "Both experts were right by step {both_by}; {first_expert} and {second_expert} % of the accepted guesses "
            "are theirs.",
            f"both experts have guesses accepted within {OPENING_STEPS} steps, and the answer is at least "
            f"{overall:.2f}× as fast, as the benchmark is",
            lambda figures: (figures.both_by or OPENING_STEPS + 1) <= OPENING_STEPS and figures.speedup >= overall,
            GREEDY,
            SIZES_ITSELF,
        ),
        Scenario(
            "2-code",
            (
                "Write a Python class Stack with push, pop and peek, then show how to use it.",
                "Write a Python function that reverses a string.",
            ),
            "Code repeats itself and is easy to guess: up to {longest} guesses in a row were right.",
            "at least three guesses in a row are accepted somewhere, and more is gained than in the benchmark",
            lambda figures: figures.longest >= 3 and figures.speedup > overall,
            GREEDY,
            SIZES_ITSELF,
        ),
        Scenario(
            "3-haiku",
            ("Write a haiku about rain.", "Write two lines about the sea."),
            "Drawn at temperature 1: the small network guesses with the model’s own dice, and all {tokens} "
            "tokens are the same as in plain decoding.",
            "something is accepted",
            lambda figures: figures.longest >= 1,
            SamplingParams(temperature=1.0, seed=1, max_new_tokens=512, record_alternatives=True),
            SIZES_ITSELF,
        ),
        Scenario(
            "4-slowest",
            tuple(question.turns[0] for question in load_questions() if question.category == slowest),
            f"The slowest kind of question in the benchmark, {slowest}: at {{refused}} % of the checked levels no "
            "guess is right.",
            f"it gains less than the mean of the benchmark, {overall:.2f}×",
            lambda figures: figures.speedup < overall,
            GREEDY,
            SIZES_ITSELF,
        ),
        Scenario(
            "5-large-tree",
            ("What is a rainbow?", "Why do we have seasons?"),
            "A tree of {candidates:.0f} guesses at every step: up to {longest} in a row were right, but checking so "
            "many takes time.",
            "at least four guesses in a row are accepted somewhere, and it gains less than the benchmark’s small trees",
            lambda figures: figures.longest >= 4 and figures.speedup < overall,
            GREEDY,
            LARGE,
        ),
        Scenario(
            "6-contrast",
            (
                "What is the capital of France, and why is it famous?",
                "Why do leaves change color in autumn?",
                "Why is the sky blue?",
            ),
            "Another small network, with a contrastive branch: one pass guesses the last two levels, and {contrastive} "
            "of the branch’s guesses are accepted.",
            "a guess of the contrastive branch is accepted",
            lambda figures: figures.contrastive > 0,
            GREEDY,
            TreeConfig(nodes=48, depth=3),
            head="smollm2-135m-instruct-summed",
        ),
    )


def record(generator, scenario: Scenario) -> dict:
    """Try the scenario's questions until its rule is satisfied, and return that recording.

    Raises:
        ValueError: two texts differ, or no question satisfies the rule; the message has the measurements.
    """
    measured = []
    for question in scenario.questions:
        traces = _race(generator, scenario, question)
        figures = figures_of(traces[PLAIN.name], traces[DEFAULT.name])
        if figures.is_complete and scenario.rule(figures):
            return {
                "title": question,
                "why": scenario.why.format(**asdict(figures)),
                "traces": {method: trace.to_dict() for method, trace in traces.items()},
            }
        measured.append(f"“{question}” {figures}")
    raise ValueError(
        f"“{scenario.name}” was not recorded: no complete answer satisfies the rule “{scenario.requirement}”. "
        f"Add a question to app/tools/record.py. "
        f"Measured: {'; '.join(measured)}."
    )


def _race(generator, scenario: Scenario, question: str) -> dict:
    messages = [{"role": "user", "content": question}]
    race = generator.race(messages, scenario.params, methods=(PLAIN.name, DEFAULT.name), tree=scenario.tree)
    for _ in race:
        pass
    if first_difference(race.traces[PLAIN.name].token_ids, race.traces[DEFAULT.name].token_ids) is not None:
        raise ValueError(f"“{question}” was not recorded: its two texts differ.")
    return race.traces


def write(recording: dict, path: Path) -> None:
    # Floats to seven significant digits: more than is ever shown, and half the size
    short = json.loads(json.dumps(recording), parse_float=lambda number: float(f"{float(number):.7g}"))
    text = json.dumps(short, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    pair, folder = read_options("Makes the shipped recordings.", TRACES)
    named = pair["target"] or pair["head"]
    chosen = [scenario for scenario in scenarios(benchmark_speedups()) if scenario.head is None or not named]
    heads = {scenario.head for scenario in chosen}
    with errors_as_one_sentence():
        generators = {head: load_generator(pair | {"head": head or pair["head"]}) for head in heads}
        recordings = {scenario.name: record(generators[scenario.head], scenario) for scenario in chosen}
    folder.mkdir(parents=True, exist_ok=True)
    for name, recording in recordings.items():
        write(recording, folder / f"{name}.json")


if __name__ == "__main__":
    main()
