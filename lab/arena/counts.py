"""Raw data of the discipline *same nodes*: what each answer's steps accepted, without its seconds.

With equal trees nothing but acceptance is compared, so the run may share its machine and its seconds say nothing.
"""

import json
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from jakiro.bench.runner import Lane
from jakiro.drafters.registry import PLAIN
from lab import raw


@dataclass(frozen=True, slots=True)
class Counts:
    """One answer of one lane.

    Attributes:
        nodes: of each tree, its root included.
        num_tested: levels that had a candidate to try, over all steps; `num_accepted` of them were kept.
        same: whether the answer's ids are plain decoding's; None where plain decoding took no part.
    """

    question_id: str
    category: str
    method: str
    nodes: int
    temperature: float
    num_tokens: int
    num_steps: int
    num_accepted: int
    num_tested: int
    same: bool | None


@dataclass(frozen=True, slots=True)
class SameNodes:
    """A run of the discipline, read again."""

    environment: dict
    settings: dict
    answers: tuple[Counts, ...]


def compact(bench: dict) -> str:
    """A bench.json in some 50 bytes an answer; methods without trees of a given size are left out."""
    plain = {_key(run): run["token_ids"] for run in bench["runs"] if run["lane"] == PLAIN.name}
    lanes = [(raw.lane_named(run["lane"]), run) for run in bench["runs"]]
    answers = [_counts(lane, run, plain.get(_key(run))) for lane, run in lanes if isinstance(lane.nodes, int)]
    head = {
        "environment": bench["environment"],
        "settings": bench["settings"],
        "columns": [field.name for field in fields(Counts)],
    }
    return raw.lines(head, "answers", [astuple(answer) for answer in answers])


def read(path: Path) -> SameNodes:
    """What `compact` wrote."""
    values = json.loads(path.read_text(encoding="utf-8"))
    answers = tuple(Counts(**dict(zip(values["columns"], row, strict=True))) for row in values["answers"])
    return SameNodes(values["environment"], values["settings"], answers)


def _key(run: dict) -> tuple:
    return tuple(run[name] for name in ("question_id", "turn", "temperature", "seed"))


def _counts(lane: Lane, run: dict, plain_ids: list[int] | None) -> Counts:
    return Counts(
        question_id=run["question_id"],
        category=run["category"],
        method=lane.method,
        nodes=lane.nodes,
        temperature=run["temperature"],
        num_tokens=len(run["token_ids"]),
        num_steps=run["num_steps"],
        num_accepted=run["num_accepted"],
        num_tested=sum(run["tested"]),
        same=None if plain_ids is None else run["token_ids"] == plain_ids,
    )
