"""Steps as compact JSON strings for the browser: columns instead of records, distinct tokens once.

A step of 40 nodes fits in 3 KB. The browser unpacks it into the trace schema of `jakiro.trace`, rounded to the digits
the page shows; the full precision stays in the trace itself.
"""

import json
from dataclasses import asdict

from jakiro.trace import Header, Node, Step

PROBABILITY_UNIT = 100_000
SCORE_UNIT = 1000


class _Table:
    """Distinct values in order of first use; `add` returns a value's place."""

    def __init__(self) -> None:
        self._places: dict = {}

    def add(self, value) -> int:
        return self._places.setdefault(value, len(self._places))

    def values(self) -> list:
        return list(self._places)


def pack_piece(piece: bytes) -> str | list[str]:
    """A token's bytes as text where they are valid UTF-8, else as a one-element list with their hex digits."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return [piece.hex()]


def _probability(value: float | None) -> int | None:
    return None if value is None else round(value * PROBABILITY_UNIT)


def _rounded(values: tuple[float, ...] | None, digits: int) -> list[float] | None:
    return None if values is None else [round(value, digits) for value in values]


def _contributions(node: Node) -> list[float] | None:
    return _rounded(node.expert_contributions, 1)


def pack_step(step: Step) -> dict:
    """One step as a dictionary of columns; `assets/web/history.js` holds the reverse."""
    tokens, proposers, routers = _Table(), _Table(), _Table()
    nodes = step.nodes
    packed = {
        "i": step.index,
        "t": [tokens.add((node.token_id, node.piece)) for node in nodes],
        "c": [tokens.add((node.target_choice, node.target_choice_piece)) for node in nodes],
        "b": tokens.add((step.bonus_token_id, step.bonus_piece)),
        "p": [node.parent for node in nodes],
        "d": [node.draft_pass for node in nodes],
        "s": [round(node.score * SCORE_UNIT) for node in nodes],
        "q": [_probability(node.draft_prob) for node in nodes],
        "P": [_probability(node.target_prob) for node in nodes],
        "o": [proposers.add(node.proposer) for node in nodes],
        "w": [routers.add(tuple(_rounded(node.router_weights, 3))) for node in nodes],
        "e": [_contributions(node) for node in nodes],
        "g": [round(node.margin, 2) for node in nodes],
        "path": list(step.accepted_path),
        "n": len(step.committed_ids),
        "x": step.text,
        "ms": [round(step.draft_ms, 3), round(step.verify_ms, 3), round(step.other_ms, 3)],
        "plan": asdict(step.plan),
    }
    also = {str(index): list(node.also_proposed_by) for index, node in enumerate(nodes) if node.also_proposed_by}
    if also:
        packed["a"] = also
    packed["T"] = [[token_id, pack_piece(piece)] for token_id, piece in tokens.values()]
    packed["O"] = proposers.values()
    packed["W"] = routers.values()
    return packed


def pack_header(header: Header) -> dict:
    """The header as the trace's own JSON writes it; it is sent once an answer."""
    values = asdict(header)
    values["first_piece"] = header.first_piece.hex()
    return values


def to_json(value) -> str:
    """Compact JSON; NaN and infinities are refused, as the browser could not read them."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
