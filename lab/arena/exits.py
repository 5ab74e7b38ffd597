"""Where nested exits leave best: `python -m lab.arena.exits HEAD [--scale-target 7b]` prints a table.

Prompts are answered by plain decoding, with each exit alone and under thresholds (`lab/methods/s2d.py`), a different
lane first each time. A widened target keeps the text and what is accepted, so it shows what other costs change.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.base import Method, Resources
from jakiro.drafters.registry import PLAIN
from jakiro.generator import JakiroGenerator
from jakiro.loading.loader import LoadOptions, read_pair, start_pair
from jakiro.prompts import Question, load_questions
from jakiro.trace import Step, pooled_tau
from lab import KNOWN, METHODS
from lab.figures import markdown
from lab.methods.s2d import METHOD, Choose, first_sure, nested_drafter, proposers_of
from lab.scaling import OFFICIAL, Widener

THRESHOLDS = (0.2, 0.35, 0.5, 0.65, 0.8)
LONGEST, DEPTH = 48, 4


def rules_for(names: Sequence[str], thresholds: Sequence[float]) -> dict[str, Choose]:
    """By what the table calls it, how a step's exit is chosen: always the same, or the first that is sure."""

    def always(number: int) -> Choose:
        return lambda _: number

    fixed = {f"always {name}": always(number) for number, name in enumerate(names)}
    return fixed | {f"θ = {each:g}": partial(first_sure, threshold=each) for each in thresholds}


@dataclass
class Lane:
    """One lane's steps, and the exit that each of them chose: its number, or None where none was sure."""

    method: Method
    generator: JakiroGenerator
    steps: list[Step] = field(default_factory=list)
    chosen: list[int | None] = field(default_factory=list)


def answered(
    resources: Resources, questions: Sequence[Question], rules: dict[str, Choose], tree: TreeConfig
) -> dict[str, Lane]:
    """Every lane by its rule, plain decoding under its own name; answers are greedy.

    Args:
        resources: with a head of nested exits.
    """
    head, info = resources.head_for(METHOD.needs)
    head.attach(resources.target)
    lanes = {PLAIN.name: Lane(PLAIN, JakiroGenerator(resources))}
    for name, choose in rules.items():
        chosen: list[int | None] = []
        drafter = nested_drafter(head, info, _noted(choose, chosen))
        lanes[name] = Lane(METHOD, JakiroGenerator(resources, {METHOD.name: drafter}, methods=KNOWN), chosen=chosen)
    sampling, order = SamplingParams(max_new_tokens=LONGEST), list(lanes.values())
    for lane in order:
        # Nobody is timed in its first passes
        lane.generator.run(questions[0].turns[0], replace(sampling, max_new_tokens=4), lane.method.name, tree)
        lane.chosen.clear()
    for number, question in enumerate(questions):
        for lane in order[number % len(order) :] + order[: number % len(order)]:
            lane.steps += lane.generator.run(question.turns[0], sampling, lane.method.name, tree).steps
    return lanes


def _noted(choose: Choose, chosen: list[int | None]) -> Choose:
    def choice(chances: Sequence[float]) -> int | None:
        chosen.append(choose(chances))
        return chosen[-1]

    return choice


def table(lanes: dict[str, Lane], names: Sequence[str]) -> str:
    """Per lane: τ, the share of steps by exit, those in which none was sure, median times of a step, speed."""
    columns = ["", "τ", *names, "none sure", "draft", "check", "speed"]
    plain = _speed(lanes[PLAIN.name])
    return markdown(columns, [list(_cells(name, lane, len(names), plain)) for name, lane in lanes.items()])


def _cells(name: str, lane: Lane, count: int, plain: float) -> Iterator[str]:
    yield name
    yield f"{pooled_tau(lane.steps):.2f}"
    for number in (*range(count), None):
        yield f"{lane.chosen.count(number) / len(lane.chosen):.0%}" if lane.chosen else "–"
    for part in (lambda step: step.draft_ms, lambda step: step.verify_ms):
        yield f"{_median(lane, part):.1f} ms"
    yield f"{_speed(lane) / plain:.2f}×"


def _median(lane: Lane, part: Callable[[Step], float]) -> float:
    return median(map(part, lane.steps))


def _speed(lane: Lane) -> float:
    """Tokens a step over the median step's milliseconds: what interrupts a few steps does not count."""
    return pooled_tau(lane.steps) / _median(lane, lambda step: step.total_ms)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("head", help="a head for s2d: a folder or a Hub id")
    parser.add_argument("--scale-target", choices=list(OFFICIAL), help="widen the target to these costs")
    parser.add_argument("--limit", type=int, default=8, help="prompts")
    parser.add_argument("--nodes", type=int, default=8, help="nodes of a tree")
    given = parser.parse_args(arguments)
    widener = given.scale_target and Widener(given.scale_target)
    precision = "full" if widener else None
    options = LoadOptions(head=given.head, dtype="float32", draft_precision=precision, methods=METHODS)
    read = read_pair(options)
    resources = start_pair(widener(read) if widener else read).resources
    head, _ = resources.head_for(METHOD.needs)
    names = [proposer.id for proposer in proposers_of(head.config.exit_layers)]
    if widener:
        print(widener.widening.sentence, end="\n\n")  # noqa: T201
    tree = TreeConfig(nodes=given.nodes, depth=DEPTH)
    lanes = answered(resources, load_questions(limit=given.limit), rules_for(names, THRESHOLDS), tree)
    print(table(lanes, names))  # noqa: T201


if __name__ == "__main__":
    main()
