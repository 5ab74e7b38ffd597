"""Makes the shipped recordings: plain decoding and Jakiro on the same questions, as one file each in `assets/traces/`.

    python -m app.record [--target … --head … --device … --dtype …]

A recording holds {"title", "why", "traces": {"autoregressive": …, "jakiro": …}}; the page plays the first by name.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from app.asking import DRAFTED, PLAIN
from app.web import TRACES
from jakiro.config import SamplingParams, TreeConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """What one recording asks, and why it is worth seeing."""

    name: str
    title: str
    why: str
    question: str
    params: SamplingParams
    tree: TreeConfig


SIZES_ITSELF = TreeConfig(policy="auto", nodes=64, depth=8)

PLANS = (
    Plan(
        "1-counting",
        "Counting in words",
        "Easy to guess: long accepted paths, the draft at its best.",
        "Count from 1 to 30 in words.",
        SamplingParams(max_new_tokens=128),
        TreeConfig(nodes=24, depth=5),
    ),
    Plan(
        "2-sky",
        "Why is the sky blue?",
        "Plain prose: both experts take turns, and a few guesses in a row often hold.",
        "Why is the sky blue?",
        SamplingParams(max_new_tokens=128),
        SIZES_ITSELF,
    ),
    Plan(
        "3-haiku",
        "A haiku at temperature 1",
        "Sampled text: draft and target share their dice, so the text is still the same.",
        "Write a haiku about rain.",
        SamplingParams(temperature=1.0, seed=1, max_new_tokens=96),
        SIZES_ITSELF,
    ),
    Plan(
        "4-letters",
        "Random letters",
        "Hard to guess: most candidates are refused, and the page says plainly what that costs.",
        "Write 40 random letters separated by spaces, no words.",
        SamplingParams(temperature=1.0, seed=2, max_new_tokens=96),
        SIZES_ITSELF,
    ),
)


def record(generator, plan: Plan) -> dict:
    """Runs one race and returns the recording."""
    race = generator.race(
        [{"role": "user", "content": plan.question}], plan.params, methods=(PLAIN, DRAFTED), tree=plan.tree
    )
    for _ in race:
        pass
    return {
        "title": plan.title,
        "why": plan.why,
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
    parser = argparse.ArgumentParser(description="Makes the shipped recordings.")
    for name in ("target", "head", "device", "dtype", "numerics"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--out", type=Path, default=TRACES)
    arguments = vars(parser.parse_args())
    folder = arguments.pop("out")
    from jakiro import JakiroGenerator

    generator = JakiroGenerator.from_pretrained(**arguments)
    folder.mkdir(parents=True, exist_ok=True)
    for plan in PLANS:
        write(record(generator, plan), folder / f"{plan.name}.json")


if __name__ == "__main__":
    main()
