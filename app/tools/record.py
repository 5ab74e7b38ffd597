"""Makes the shipped recordings: plain decoding and Jakiro on the same questions, as one file each in `assets/traces/`.

    python -m app.tools.record [--target … --head … --device … --dtype …]

A recording holds {"title", "why", "traces": traces by method}; the page opens on the first by name. A scenario asks its
questions in turn and keeps the first answer for which its rule holds; title and caption say what was measured, not
what was hoped for. Scenarios that need a certain head are left out where the command line names a pair.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from app.page.web import TRACES
from app.tools.figures import Figures, figures_of
from app.tools.record_options import load_generator, read_options
from jakiro.config import SamplingParams, TreeConfig
from jakiro.methods import DEFAULT, PLAIN
from jakiro.system import errors_as_one_sentence
from jakiro.trace import first_difference


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one recording asks, and the rule that holds where it is worth seeing.

    Attributes:
        questions: tried in turn until the rule holds.
        why: the caption, filled in with the fields of `Figures`.
        rule: what the figures must say; `wanted` says it in words.
        head: names a head of the default target where it must not be the default one.
    """

    name: str
    questions: tuple[str, ...]
    why: str
    wanted: str
    rule: Callable[[Figures], bool]
    params: SamplingParams
    tree: TreeConfig
    head: str | None = None


SIZES_ITSELF = TreeConfig(policy="auto", nodes=64, depth=8)
OPENING_STEPS = 3

SCENARIOS = (
    Scenario(
        "1-counting",
        (
            "Count from one to thirty, and write every number as a word.",
            "What should I pack for a day at the beach?",
            "Name ten animals and where they live.",
            "Why do leaves change color in autumn?",
        ),
        "Both experts propose, and by step {both_by} both were right: {first_expert} and {second_expert} % of the "
        "accepted guesses.",
        f"both experts have guesses accepted within {OPENING_STEPS} steps",
        lambda figures: figures.both_by is not None and figures.both_by <= OPENING_STEPS,
        SamplingParams(max_new_tokens=128),
        TreeConfig(nodes=24, depth=5),
    ),
    Scenario(
        "2-sky",
        ("Why is the sky blue?", "How does a bicycle stay upright?", "What is a rainbow?"),
        "Plain prose: {tau:.2f} tokens a step, at best {longest} guesses in a row, {speedup:.2f}× plain decoding.",
        "at least three guesses in a row are accepted somewhere",
        lambda figures: figures.longest >= 3,
        SamplingParams(max_new_tokens=128),
        TreeConfig(nodes=10, depth=3),
    ),
    Scenario(
        "3-haiku",
        ("Write a haiku about rain.", "Write two lines about the sea."),
        "Drawn at temperature 1: draft and target share their dice, and all {tokens} tokens are the same.",
        "something is accepted",
        lambda figures: figures.longest >= 1,
        SamplingParams(temperature=1.0, seed=1, max_new_tokens=96),
        SIZES_ITSELF,
    ),
    Scenario(
        "4-letters",
        (
            "Write 40 random letters separated by spaces, no words.",
            "Write a random password of 40 characters.",
            "Invent twenty names that nobody has ever had.",
            "Write twenty random numbers between 1 and 100000.",
        ),
        "Hard to guess: {refused} % of the tested levels are refused, {tau:.2f} tokens a step, "
        "{speedup:.2f}× plain decoding.",
        "at least half of the tested levels are refused, and drafting gains less than a tenth",
        lambda figures: figures.refused >= 50 and figures.speedup < 1.1,
        SamplingParams(temperature=1.0, seed=2, max_new_tokens=96),
        SIZES_ITSELF,
    ),
    Scenario(
        "5-beach",
        (
            "Give me five tips for a good night's sleep.",
            "Describe a market in a small town.",
            "What should I pack for a day at the beach?",
        ),
        "Two experts that speak for themselves: {first_expert} % of the accepted guesses are the first one's, "
        "{second_expert} % the second one's.",
        "each expert has at least a quarter of the accepted guesses",
        lambda figures: min(figures.first_expert, figures.second_expert) >= 25,
        SamplingParams(max_new_tokens=128),
        TreeConfig(nodes=12, depth=4),
        head="smollm2-135m-instruct-decoupled",
    ),
    Scenario(
        "6-contrast",
        (
            "What is the capital of France, and why is it famous?",
            "Why do leaves change color in autumn?",
            "Why is the sky blue?",
        ),
        "A head with a contrastive branch: the last two levels come from one pass, and {contrastive} of its guesses "
        "are accepted.",
        "a guess of the contrastive branch is accepted",
        lambda figures: figures.contrastive > 0,
        SamplingParams(max_new_tokens=96),
        TreeConfig(nodes=48, depth=3),
        head="smollm2-135m-instruct-summed",
    ),
)


def record(generator, scenario: Scenario) -> dict:
    """Asks the scenario's questions until its rule holds, and returns that recording.

    Raises:
        ValueError: two texts differ, or the rule holds for no question; the sentence says what was measured.
    """
    measured = []
    for question in scenario.questions:
        traces = _race(generator, scenario, question)
        figures = figures_of(traces[PLAIN.name], traces[DEFAULT.name])
        if figures.drafted and scenario.rule(figures):
            return {
                "title": question,
                "why": scenario.why.format(**asdict(figures)),
                "traces": {method: trace.to_dict() for method, trace in traces.items()},
            }
        measured.append(f"“{question}” {figures}")
    raise ValueError(
        f"“{scenario.name}” was not recorded: wanted is that {scenario.wanted}. Add a question to app/tools/record.py. "
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
    with errors_as_one_sentence():
        generators = {head: load_generator(pair | {"head": head or pair["head"]}) for head in heads}
        recordings = {scenario.name: record(generators[scenario.head], scenario) for scenario in scenarios}
    folder.mkdir(parents=True, exist_ok=True)
    for name, recording in recordings.items():
        write(recording, folder / f"{name}.json")


if __name__ == "__main__":
    main()
