"""Raw data of the comparison with equal numbers of nodes: the accepted tokens of each answer's steps, without times.

Only acceptance is compared, so the benchmark may share its machine with other programs.
"""

from dataclasses import astuple, dataclass, fields
from pathlib import Path

from jakiro.bench.runner import Lane
from jakiro.drafters.registry import PLAIN
from lab import raw


@dataclass(frozen=True, slots=True)
class Counts:
    """One answer of one lane.

    Attributes:
        nodes: size of each tree, root included.
        num_tested: tested levels of all steps, of which `num_accepted` were accepted.
        same: whether the token ids equal plain decoding's; None if plain decoding was not measured.
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


def compact(bench: dict) -> str:
    """Return the content of a bench.json as text with about 50 bytes per answer.

    Lanes without a fixed number of nodes are left out.
    """
    plain = {_key(run): run["token_ids"] for run in bench["runs"] if run["lane"] == PLAIN.name}
    lanes = [(raw.lane_named(run["lane"]), run) for run in bench["runs"]]
    answers = [_counts(lane, run, plain.get(_key(run))) for lane, run in lanes if isinstance(lane.nodes, int)]
    columns = [field.name for field in fields(Counts)]
    head = {"environment": bench["environment"], "settings": bench["settings"], "columns": columns}
    return raw.lines(head, "answers", [astuple(answer) for answer in answers])


def read(path: Path) -> tuple[dict, list[Counts]]:
    """Read a file written by `compact`; return its entries by name, and its answers."""
    values = raw.read_rows(path, "answers")
    return values, [Counts(**row) for row in values["answers"]]


def _key(run: dict) -> tuple:
    return tuple(run[name] for name in ("question_id", "turn", "temperature", "seed"))


def _counts(lane: Lane, run: dict, plain_ids: list[int] | None) -> Counts:
    copied = {name: run[name] for name in ("question_id", "category", "temperature", "num_steps", "num_accepted")}
    return Counts(
        **copied,
        method=lane.method,
        nodes=lane.nodes,
        num_tokens=len(run["token_ids"]),
        num_tested=sum(run["tested"]),
        same=None if plain_ids is None else run["token_ids"] == plain_ids,
    )
