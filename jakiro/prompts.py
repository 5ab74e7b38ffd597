"""Prompt sets in Spec-Bench format: one JSON object per line with question_id, category and turns."""

import json
from dataclasses import dataclass
from pathlib import Path

from jakiro.system import assets_folder


@dataclass(frozen=True, slots=True)
class Question:
    """One conversation; its turns are the user messages, answered in order."""

    question_id: str
    category: str
    turns: tuple[str, ...]


def own_prompts() -> Path:
    """Return the path of the prompts shipped with Jakiro, which all published measurements use."""
    return assets_folder() / "prompts" / "own.jsonl"


def load_questions(path: Path | None = None, limit: int | None = None) -> list[Question]:
    """Load the questions of a file, by default the shipped prompts.

    Args:
        path: File in Spec-Bench format.
        limit: Maximum number of questions, taken from the categories in turn so that a short run covers each.

    Raises:
        ValueError: a line is not in Spec-Bench format, the limit is below 1, or the file has no prompts.
        FileNotFoundError: the file does not exist.
    """
    path = path or own_prompts()
    if not path.is_file():
        raise FileNotFoundError(f"There is no prompt file {path}.")
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            questions.append(_read(line, f"{path.name}, line {number}"))
    if limit is not None:
        if limit < 1:
            raise ValueError(f"The limit must be at least 1 prompt; got {limit}.")
        questions = _in_turn(questions)[:limit]
    if not questions:
        raise ValueError(f"{path.name} holds no prompts.")
    return questions


def _read(line: str, where: str) -> Question:
    try:
        values = json.loads(line)
        turns = values["turns"]
        question = Question(str(values["question_id"]), str(values["category"]), tuple(turns))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{where}: expected question_id, category and turns as JSON ({error}).") from error
    if isinstance(turns, str) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ValueError(f"{where}: turns must be a list of texts, none of them empty.")
    return question


def _in_turn(questions: list[Question]) -> list[Question]:
    """Return the questions reordered: the first of every category, then the second of every category, and so on."""
    seen: dict[str, int] = {}
    ranks = []
    for question in questions:
        ranks.append(seen.setdefault(question.category, 0))
        seen[question.category] += 1
    return [question for _, question in sorted(zip(ranks, questions, strict=True), key=lambda pair: pair[0])]
