"""Lanes that answer the same prompts alternately, and the file with their numbers."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from jakiro.bench.environment import environment
from jakiro.config import SamplingParams
from jakiro.prompts import load_questions
from jakiro.system import write_atomically
from jakiro.trace import Trace

# An answer and its numbers
Answer = tuple[Trace, dict]


def rotated(lanes: Iterable[str], turn: int) -> list[str]:
    """Return the lanes, beginning with another one in each turn, so that no lane is always measured first."""
    names = list(lanes)
    first = turn % len(names)
    return names[first:] + names[:first]


def alternate(lanes: Iterable[str], turn: int, answer: Callable[[str], Answer], place: object) -> dict[str, dict]:
    """Answer one prompt in every lane, in the order of `rotated`, and return the numbers by lane.

    Args:
        place: the prompt and its settings, for the error.

    Raises:
        RuntimeError: the texts of two lanes differ.
    """
    answers = {lane: answer(lane) for lane in rotated(lanes, turn)}
    if len({tuple(trace.token_ids) for trace, _ in answers.values()}) > 1:
        ids = {lane: trace.token_ids for lane, (trace, _) in answers.items()}
        raise RuntimeError(f"The texts of the lanes differ at {place}: {ids}")
    return {lane: numbers for lane, (_, numbers) in answers.items()}


def answer_questions(
    lanes: Iterable[str], answer: Callable[[str, SamplingParams, str], Answer],
    limit: int, length: int, temperatures: Iterable[float],
) -> list[dict]:  # fmt: skip
    """Answer our prompts in every lane at every temperature, and return the numbers of each answer.

    Args:
        answer: function of prompt, sampling settings and lane.

    Raises:
        RuntimeError: the texts of two lanes differ.
    """
    answers = []
    for number, question in enumerate(load_questions(limit=limit)):
        for temperature in temperatures:
            sampling = SamplingParams(temperature, seed=number, max_new_tokens=length)
            place = {"prompt": number, "category": question.category, "temperature": temperature}
            by_lane = alternate(lanes, number, partial(answer, question.turns[0], sampling), place)
            answers += [place | {"lane": lane} | numbers for lane, numbers in by_lane.items()]
    return answers


def decoded(trace: Trace) -> dict:
    """Return seconds, tokens and steps of an answer without its first token, which the prefill computes."""
    return {"seconds": trace.decode_seconds, "tokens": len(trace.token_ids) - 1, "steps": len(trace.steps)}


def write_numbers(path: Path | None, status: dict, **numbers) -> None:
    """Write numbers and the environment of their measurement to a JSON file, if one is given.

    Args:
        status: as for `environment`.
    """
    if path is not None:
        write_atomically(path, json.dumps({"environment": environment(status), **numbers}, indent=1) + "\n")
