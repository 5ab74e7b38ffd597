"""The held-out texts of a corpus, and the manifest of a head, which lists them."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from jakiro.system import write_atomically
from jakiro.training.corpus import MANIFEST_NAME, Row, read_manifest, row_counts

log = logging.getLogger(__name__)


def in_order_of_content(rows: Sequence[Row], max_tokens: int | None = None) -> list[Row]:
    """Return the texts sorted by the hash of their ids, up to a total number of tokens.

    The first ones are held out, so the split depends on neither the seed nor the number of tokens. If a corpus grows,
    some new texts are held out instead of old ones, but no text that an earlier run learned from.
    """
    ordered = sorted(rows, key=row_hash)
    totals = accumulate(len(row.ids) for row in ordered)
    return [row for row, total in zip(ordered, totals, strict=True) if max_tokens is None or total <= max_tokens]


def row_hash(row: Row) -> str:
    """Return the SHA-256 of a text's ids as 32-bit numbers, in hex."""
    return hashlib.sha256(np.asarray(row.ids, dtype="<i4").tobytes()).hexdigest()


def held_out_rows(folder: Path, rows: Sequence[Row], most: int) -> list[Row]:
    """Return at most `most` texts that a head's manifest lists as held out.

    Raises:
        ValueError: the manifest lists none of them.
    """
    path, hashes = folder / MANIFEST_NAME, read_manifest(folder).get("held_out", ())
    held_out = [row for row in in_order_of_content(rows) if row_hash(row)[:16] in set(hashes)]
    if not held_out:
        raise ValueError(
            f"None of these {len(rows)} rows is among the {len(hashes)} that {path} lists as held out; use the corpus "
            "on which the head was trained, or, with --unread, one that it has not read."
        )
    return held_out[:most]


def refuse_rows_that_were_learned(folder: Path, rows: Sequence[Row], num_held_out: int) -> None:
    """Check that a head to start from has not learned from the texts to hold out, the first ones.

    It held out the first texts of its own corpus by their hash, so it can only have learned from later ones.

    Args:
        folder: of the head; without a manifest a warning is logged.
        rows: texts in the order of `in_order_of_content`.
        num_held_out: number of texts to hold out.

    Raises:
        ValueError: the head may have learned from some of them.
    """
    hashes = read_manifest(folder).get("held_out", ())
    if not hashes:
        log.warning("%s lists no held-out rows, so it may have learned from the rows that evaluate this run.", folder)
        return
    unread = sum(row_hash(row)[:16] <= max(hashes) for row in rows[:num_held_out])
    if unread < num_held_out:
        raise ValueError(
            f"The head to start from may have trained on {num_held_out - unread} of the {num_held_out} rows to hold "
            f"out (it held out {len(hashes)} rows of its own text); "
            + (f"give --validation-rows {unread} or fewer." if unread else "give more text.")
        )


def write_manifest(folder: Path, rows: Sequence[Row], num_held_out: int, target: str) -> None:
    """Write the manifest of a head: texts and tokens by kind, answers by temperature, and the held-out texts."""
    hashes = [row_hash(row) for row in rows]
    kinds = sorted({row.kind for row in rows})
    manifest = {
        "target": target,
        "counts": row_counts(rows),
        "kinds": {kind: row_counts([row for row in rows if row.kind == kind]) for kind in kinds},
        "temperatures": dict(sorted(Counter(str(row.temp) for row in rows).items())),
        "rows_sha256": hashlib.sha256("".join(hashes).encode()).hexdigest(),
        "held_out": [sha256[:16] for sha256 in hashes[:num_held_out]],
    }
    write_atomically(folder / MANIFEST_NAME, json.dumps(manifest, indent=1) + "\n")


def add_minutes(folder: Path, minutes: float) -> None:
    """Store a head's training time in its manifest, including that of the heads it started from."""
    manifest = read_manifest(folder) | {"minutes": round(minutes, 1)}
    write_atomically(folder / MANIFEST_NAME, json.dumps(manifest, indent=1) + "\n")
