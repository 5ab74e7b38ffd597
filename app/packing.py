"""Steps as compact JSON strings for the browser: columns of digits instead of records, distinct tokens once.

A step of 64 nodes fits in 3 KB. The browser unpacks it into the trace schema of `jakiro.trace`, rounded to the digits
the page shows; the full precision stays in the trace itself.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict

from jakiro.trace import Header, Plan, Step

PROBABILITY_UNIT = 100_000
SCORE_UNIT = 1000
WEIGHT_UNIT = 1000
CONTRIBUTION_UNIT = 10
MARGIN_UNIT = 1000
# One character a digit: printable ASCII from # to ~ without the backslash, so that JSON escapes none of them
DIGITS = "".join(chr(code) for code in range(35, 127) if code != 92)

SEPARATOR = "\x7f"


class _Table:
    """Distinct values in order of first use; `add` returns a value's place."""

    def __init__(self) -> None:
        self._places: dict = {}

    def add(self, value) -> int:
        return self._places.setdefault(value, len(self._places))

    def values(self) -> list:
        return list(self._places)


def pack_column(values: Iterable[int]) -> str:
    """Non-negative integers as digits of one width, the least that holds the largest of them."""
    values = list(values)
    width = 1
    while len(DIGITS) ** width <= max(values, default=0):
        width += 1
    places = [len(DIGITS) ** place for place in reversed(range(width))]
    return "".join(DIGITS[value // place % len(DIGITS)] for value in values for place in places)


def pack_piece(piece: bytes) -> str | list[str]:
    """A token's bytes as text where they are valid UTF-8, else as a one-element list with their hex digits."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return [piece.hex()]


def _pack_pieces(pieces: list[bytes]) -> str | list:
    """All pieces in one text where that is possible, else a list."""
    packed = [pack_piece(piece) for piece in pieces]
    joinable = all(isinstance(piece, str) and SEPARATOR not in piece for piece in packed)
    return SEPARATOR.join(packed) if joinable else packed


def _count(value: float | None, unit: int) -> int:
    """How many units, and one; 0 stands for None."""
    return 0 if value is None else 1 + round(value * unit)


def _signed(value: float | None, unit: int) -> int:
    """As `_count`, for both signs: even above zero, odd below."""
    if value is None:
        return 0
    whole = round(value * unit)
    return 1 + (2 * whole if whole >= 0 else -2 * whole - 1)


def _flat(rows: list[tuple | None], pack) -> list:
    """[how many a node has at most, one column of them node by node]."""
    rows = [row or () for row in rows]
    width = max(map(len, rows), default=0)
    return [width, pack_column(pack(value) for row in rows for value in (*row, *(None,) * (width - len(row))))]


def pack_step(step: Step) -> dict:
    """One step as a dictionary of columns; `assets/web/history.js` holds the reverse."""
    tokens, proposers = _Table(), _Table()
    nodes = step.nodes
    packed = {
        "i": step.index,
        "N": len(nodes),
        "t": pack_column([tokens.add((node.token_id, node.piece)) for node in nodes]),
        "c": pack_column([tokens.add((node.target_choice, node.target_choice_piece)) for node in nodes]),
        "b": tokens.add((step.bonus_token_id, step.bonus_piece)),
        "p": pack_column(node.parent + 1 for node in nodes),
        "d": pack_column(node.draft_pass for node in nodes),
        "s": pack_column(max(0, round(-node.score * SCORE_UNIT)) for node in nodes),
        "q": pack_column(_count(node.draft_prob, PROBABILITY_UNIT) for node in nodes),
        "P": pack_column(_count(node.target_prob, PROBABILITY_UNIT) for node in nodes),
        "o": pack_column([proposers.add(node.proposer) for node in nodes]),
        "w": _flat([node.router_weights for node in nodes], lambda value: _count(value, WEIGHT_UNIT)),
        "e": _flat([node.expert_contributions for node in nodes], lambda value: _signed(value, CONTRIBUTION_UNIT)),
        # As square roots: near ties, where the margin is shown, keep their digits
        "g": pack_column(round(math.sqrt(max(0.0, node.margin)) * MARGIN_UNIT) for node in nodes),
        "path": list(step.accepted_path),
        "n": len(step.committed_ids),
        "x": step.text,
        "ms": [round(step.draft_ms, 3), round(step.verify_ms, 3), round(step.other_ms, 3)],
        "plan": _pack_plan(step.plan),
    }
    also = {str(index): list(node.also_proposed_by) for index, node in enumerate(nodes) if node.also_proposed_by}
    if also:
        packed["a"] = also
    packed["T"] = pack_column(token_id for token_id, _ in tokens.values())
    packed["U"] = _pack_pieces([piece for _, piece in tokens.values()])
    packed["O"] = proposers.values()
    return packed


def _pack_plan(plan: Plan) -> list:
    expected = [None if value is None else round(value, 2) for value in (plan.expected_tokens, plan.expected_ms)]
    curve = [[nodes, round(speed, 2)] for nodes, speed in plan.curve]
    return [plan.levels, plan.nodes, plan.why, *expected, curve, int(plan.reread)]


def pack_header(header: Header) -> dict:
    """The header as the trace's own JSON writes it; it is sent once an answer."""
    values = asdict(header)
    values["first_piece"] = header.first_piece.hex()
    return values


def to_json(value) -> str:
    """Compact JSON; NaN and infinities are refused, as the browser could not read them."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
