"""An answer's events as compact JSON for the browser: columns of digits instead of records, and nothing said twice.

Tokens and sentences travel once an answer and by number afterwards, so the events of one answer are packed and unpacked
in order. The browser unpacks steps into the trace schema of `jakiro.trace`, rounded to the digits the page shows; the
full precision stays in the trace itself.
"""

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import asdict

from jakiro.trace import Header, Node, Step

PROBABILITY_UNIT = 100_000
SCORE_UNIT = 1000
WEIGHT_UNIT = 1000
CONTRIBUTION_UNIT = 10
MARGIN_UNIT = 1000
MILLISECOND_UNIT = 1000
PLAN_UNIT = 100
# One character a digit: printable ASCII from # to ~ without the backslash, so that JSON escapes none of them
DIGITS = "".join(chr(code) for code in range(35, 127) if code != 92)

SEPARATOR = "\x7f"


class _Table:
    """Distinct values in order of first use; `add` returns a value's place."""

    def __init__(self) -> None:
        self._places: dict = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, value) -> int:
        return self._places.setdefault(value, len(self._places))

    def values(self, start: int = 0) -> list:
        return list(itertools.islice(self._places, start, None))


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


class Packer:
    """Packs the events of one answer, in order; `Run` and `StepReader` in `assets/web/` hold the reverse."""

    def __init__(self) -> None:
        self._lanes: dict[str, _LanePacker] = {}

    def pack(self, event: tuple) -> list:
        """One event (kind, method, payload) as plain data; a step comes after its lane's header."""
        kind, method, payload = event
        if kind == "header":
            self._lanes[method] = _LanePacker()
            payload = pack_header(payload)
        elif kind == "step":
            payload = self._lanes[method].pack(payload)
        return [kind, method, payload]


class _LanePacker:
    """Packs the steps of one lane, in order."""

    def __init__(self) -> None:
        self._tokens, self._names = _Table(), _Table()

    def pack(self, step: Step) -> list:
        """[columns of digits, new pieces, new names, text]: numbers, then the strings that they begin to speak of."""
        tokens, names, rows = self._tokens, self._names, _Table()
        known_tokens, known_names = len(tokens), len(names)
        nodes, plan = step.nodes, step.plan
        places = [tokens.add((node.token_id, node.piece)) for node in nodes]
        choices = [tokens.add((node.target_choice, node.target_choice_piece)) for node in nodes]
        bonus = tokens.add((step.bonus_token_id, step.bonus_piece))
        proposers = [names.add(node.proposer) for node in nodes]
        also = [(i, names.add(source)) for i, node in enumerate(nodes) for source in node.also_proposed_by]
        why = names.add(plan.why)
        weights = [rows.add(node.router_weights) for node in nodes]
        row_width = max(map(len, rows.values()), default=0)
        contributions = [node.expert_contributions or () for node in nodes]
        contribution_width = max(map(len, contributions), default=0)
        new_tokens = tokens.values(known_tokens)
        counts = [
            len(nodes), len(step.committed_ids), plan.levels, plan.nodes, int(plan.reread), len(step.accepted_path),
            len(plan.curve), len(also), len(rows), row_width, contribution_width, len(new_tokens),
        ]  # fmt: skip
        times = [_count(time, MILLISECOND_UNIT) for time in (step.draft_ms, step.verify_ms, step.other_ms)]
        expected = [_count(value, PLAN_UNIT) for value in (plan.expected_tokens, plan.expected_ms)]
        columns = [
            counts,
            [step.index, bonus, why],
            times + expected,
            places,
            choices,
            *_node_columns(nodes),
            proposers,
            weights,
            [_count(value, WEIGHT_UNIT) for row in rows.values() for value in _filled(row, row_width)],
            [_signed(value, CONTRIBUTION_UNIT) for row in contributions for value in _filled(row, contribution_width)],
            step.accepted_path,
            [number for pair in also for number in pair],
            [count for count, _ in plan.curve],
            [round(speed * PLAN_UNIT) for _, speed in plan.curve],
            [token_id for token_id, _ in new_tokens],
        ]
        pieces = _pack_pieces([piece for _, piece in new_tokens])
        return ["".join(map(_with_width, columns)), pieces, names.values(known_names), step.text]


def _node_columns(nodes: tuple[Node, ...]) -> list[list[int]]:
    return [
        [node.parent + 1 for node in nodes],
        [node.draft_pass for node in nodes],
        [max(0, round(-node.score * SCORE_UNIT)) for node in nodes],
        [_count(node.draft_prob, PROBABILITY_UNIT) for node in nodes],
        [_count(node.target_prob, PROBABILITY_UNIT) for node in nodes],
        # As square roots: near ties, where the margin is shown, keep their digits
        [round(math.sqrt(max(0.0, node.margin)) * MARGIN_UNIT) for node in nodes],
    ]


def _filled(row: tuple, width: int) -> tuple:
    return (*row, *(None,) * (width - len(row)))


def _with_width(values: Iterable[int]) -> str:
    """A column behind how many digits its numbers have; a column of zeros has none."""
    values = list(values)
    if not any(values):
        return DIGITS[0]
    digits = pack_column(values)
    return DIGITS[len(digits) // len(values)] + digits


def pack_header(header: Header) -> dict:
    """The header as the trace's own JSON writes it; it is sent once an answer."""
    values = asdict(header)
    values["first_piece"] = header.first_piece.hex()
    return values


def to_json(value) -> str:
    """Compact JSON; NaN and infinities are refused, as the browser could not read them."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
