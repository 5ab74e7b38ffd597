"""Raw data of a published table: the runs of a benchmark without their token ids, one per line."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from jakiro.bench.peers import PEERS as OURS
from jakiro.bench.runner import AUTO, Lane, Run
from lab.peers import PEERS

COLUMNS = (
    "question_id", "category", "turn", "lane", "temperature", "seed", "tokens", "checksum", "seconds", "num_steps",
    "num_accepted", "draft_ms", "verify_ms", "other_ms", "prefill_ms", "comparable",
)  # fmt: skip
_DIGITS = {"seconds": 5} | dict.fromkeys(("draft_ms", "verify_ms", "other_ms", "prefill_ms"), 2)


@dataclass(frozen=True, slots=True)
class Raw:
    """A benchmark that was read again.

    The token ids of a run are replaced by a checksum followed by zeros, so that equal texts stay equal and different
    texts stay different.
    """

    environment: dict
    settings: dict
    runs: tuple[Run, ...]


def compact(bench: dict) -> str:
    """Return the content of a bench.json as text with about 100 bytes per run."""
    head = {"environment": bench["environment"], "settings": bench["settings"], "columns": COLUMNS}
    return lines(head, "runs", [_row(run) for run in bench["runs"]])


def read(path: Path) -> Raw:
    """Read a file written by `compact`."""
    values = read_rows(path, "runs")
    return Raw(values["environment"], values["settings"], tuple(map(_run, values["runs"])))


def read_rows(path: Path, name: str) -> dict:
    """Read a file written by `lines` with the entry `columns`; its rows are dictionaries by column."""
    values = json.loads(path.read_text(encoding="utf-8"))
    return values | {name: [dict(zip(values["columns"], row, strict=True)) for row in values[name]]}


def lines(head: dict, name: str, rows: Sequence) -> str:
    """Return one JSON object with one line per entry of `head` and one line per row."""
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    listed = ",\n".join(json.dumps(row, separators=(",", ":"), allow_nan=False) for row in rows)
    return "{" + ",\n".join([*parts, f'"{name}": [\n{listed}\n]']) + "}\n"


def lane_named(name: str) -> Lane:
    """Return the lane with this name."""
    method, _, nodes = name.partition(" · ")
    return Lane(method, None if not nodes else nodes if nodes == AUTO else int(nodes.removesuffix(" nodes")))


def _row(run: dict) -> list:
    ids = run["token_ids"]
    values = run | {"tokens": len(ids), "checksum": zlib.crc32(json.dumps(ids).encode())}
    # Runs of other programs and older runs do not have all columns
    return [_shortened(name, values.get(name)) for name in COLUMNS]


def _shortened(name: str, value):
    return value if value is None or name not in _DIGITS else round(value, _DIGITS[name])


def _run(values: dict) -> Run:
    ids = (values["checksum"], *[0] * (values["tokens"] - 1))
    # Older files have columns that are no longer used
    values_of_run = {column.name: values[column.name] for column in fields(Run) if values.get(column.name) is not None}
    lane = lane_named(values["lane"])
    # Older files stored the tokens of other programs as steps
    steps = {"num_steps": 0} if lane.method in {*OURS, *PEERS} else {}
    return Run(**values_of_run | steps | {"token_ids": ids, "lane": lane})
