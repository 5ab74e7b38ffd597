"""Which texts of a corpus are held out, and the manifest that says so beside a head."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jakiro.system import write_atomically
from jakiro.training.corpus import MANIFEST_NAME, Row, read_manifest

log = logging.getLogger(__name__)


def in_order_of_content(rows: Sequence[Row], max_tokens: int | None = None) -> list[Row]:
    """The texts by the hash of their ids, as many from the first on as the tokens allow.

    The first are held out, so the split depends on neither seed nor number of tokens. Where a corpus grows, some new
    texts are held out instead of old ones, and none is that an earlier run learned from.
    """
    kept, total = [], 0
    for row in sorted(rows, key=row_hash):
        total += len(row.ids)
        if max_tokens is not None and total > max_tokens:
            break
        kept.append(row)
    return kept


def row_hash(row: Row) -> str:
    """SHA-256 of a text's ids as 32-bit numbers, as hex."""
    return hashlib.sha256(np.asarray(row.ids, dtype="<i4").tobytes()).hexdigest()


def held_out_rows(folder: Path, rows: Sequence[Row], most: int) -> list[Row]:
    """Texts that a head hasn't learned from: those that its manifest names, at most so many.

    Raises:
        ValueError: the manifest names none of them.
    """
    path, named = folder / MANIFEST_NAME, read_manifest(folder).get("held_out", ())
    found = [row for row in in_order_of_content(rows) if row_hash(row)[:16] in set(named)]
    if not found:
        raise ValueError(
            f"None of these {len(rows)} rows is among the {len(named)} that {path} lists as held out; give the corpus "
            "that the head was trained on, or, with --unread, one that it never saw."
        )
    return found[:most]


def refuse_rows_that_were_learned(folder: Path, rows: Sequence[Row], num_held_out: int) -> None:
    """Makes sure that a head to start from has not read the texts that are to be held out, the first ones.

    It has held out the first texts of its own corpus by their hash, so of any corpus it can only know those after them.

    Args:
        folder: of that head; one without a manifest is let pass with a warning.

    Raises:
        ValueError: it may have read some of them.
    """
    named = read_manifest(folder).get("held_out", ())
    if not named:
        log.warning("%s lists no held-out rows, so it may have trained on those that evaluate this run.", folder)
        return
    unread = sum(row_hash(row)[:16] <= max(named) for row in rows[:num_held_out])
    if unread < num_held_out:
        raise ValueError(
            f"The head to start from may have trained on {num_held_out - unread} of the {num_held_out} rows to hold "
            f"out (it held out {len(named)} rows of its own text); "
            + (f"give --validation-rows {unread} or fewer." if unread else "give more text.")
        )


def write_manifest(folder: Path, rows: Sequence[Row], num_held_out: int, target: str) -> None:
    """What a head learns from: texts and tokens by kind, answers by temperature, and which texts are held out."""
    hashes, kinds = [row_hash(row) for row in rows], {}
    for row in rows:
        counts = kinds.setdefault(row.kind, {"rows": 0, "tokens": 0, "learned_tokens": 0})
        for name, value in zip(counts, (1, len(row.ids), len(row.ids) - row.l0), strict=True):
            counts[name] += value
    manifest = {
        "target": target,
        "counts": {name: sum(each[name] for each in kinds.values()) for name in ("rows", "tokens", "learned_tokens")},
        "kinds": dict(sorted(kinds.items())),
        "temperatures": dict(sorted(Counter(str(row.temp) for row in rows).items())),
        "rows_sha256": hashlib.sha256("".join(hashes).encode()).hexdigest(),
        "held_out": [each[:16] for each in hashes[:num_held_out]],
    }
    write_atomically(folder / MANIFEST_NAME, json.dumps(manifest, indent=1) + "\n")


def add_minutes(folder: Path, minutes: float) -> None:
    """Notes in a head's manifest how long it was trained, the heads included that it went on from."""
    manifest = read_manifest(folder) | {"minutes": round(minutes, 1)}
    write_atomically(folder / MANIFEST_NAME, json.dumps(manifest, indent=1) + "\n")
