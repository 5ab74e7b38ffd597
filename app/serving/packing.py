"""An answer's events as JSON for the browser: a step has a list for each field of its nodes, named as in the trace.

Live answers and the lesson's recordings are sent in this form. Numbers are rounded to the digits that the page shows;
the trace keeps all digits. Derived values are omitted: depths follow from parents, a token's bytes from its id once
they were sent, and fields of a plan that equal the previous step's. So the events of one answer must be packed, and
read by `data/packed.js`, in order.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import fields
from functools import partial

from app.words.errors import short_name
from jakiro.trace import Header, Node, Step, Trace

# Used by the lesson's computations, and by no view of a live step
_NOT_SHOWN = ("residual_contribution",)


class Packer:
    """Packs the events of one answer, in order; `Run` in `assets/web/data/history.js` is the inverse.

    Args:
        to_compute_from: keep four decimals and all evidence, for the lesson's computations.
    """

    def __init__(self, to_compute_from: bool = False) -> None:
        self._lanes: dict[str, _LanePacker] = {}
        self._to_compute_from = to_compute_from

    def pack(self, event: tuple) -> list:
        """Return an event (kind, method, payload) as plain data; a lane's header must come before its steps."""
        kind, method, payload = event
        if kind == "header":
            self._lanes[method] = _LanePacker(payload, self._to_compute_from)
            payload = pack_header(payload)
        elif kind == "step":
            payload = self._lanes[method].pack(payload)
        return [kind, method, payload]


class _LanePacker:
    """Packs the steps of one lane, in order."""

    def __init__(self, header: Header, to_compute_from: bool) -> None:
        self._left_out, self._short = ((), partial(_rounded, digits=4)) if to_compute_from else (_NOT_SHOWN, _shortened)
        self._places = {proposer["id"]: place for place, proposer in enumerate(header.proposers)}
        self._pieces: dict[int, bytes] = {}
        self._plan: dict = {}

    def pack(self, step: Step) -> dict:
        nodes = step.nodes
        last = step.accepted_path[-1] if step.accepted_path else 0
        # The browser assumes these values, so only others are sent
        usual = {
            "also_proposed_by": {},
            "forbidden_by": {},
            "bonus_token_id": nodes[last].target_choice,
            "committed": len(step.accepted_path) + 1,
            "plan": {},
            "alternatives": [],
        }
        packed = {
            "index": step.index,
            "nodes": {
                "token_id": [node.token_id for node in nodes],
                "parent": [node.parent for node in nodes],
                "draft_pass": [node.draft_pass for node in nodes],
                "score": [_rounded(node.score, 3) for node in nodes],
                "draft_percent": [_percent(node.draft_prob) for node in nodes],
                "target_percent": [_percent(node.target_prob) for node in nodes],
                "proposer": self._named(node.proposer for node in nodes),
                "target_choice": [node.target_choice for node in nodes],
                "margin": [self._short(node.margin) for node in nodes],
            },
            "evidence": self._evidence(nodes),
            "also_proposed_by": {
                i: self._named(node.also_proposed_by) for i, node in enumerate(nodes) if node.also_proposed_by
            },
            "forbidden_by": {i: node.forbidden_by for i, node in enumerate(nodes) if node.forbidden_by},
            "accepted_path": step.accepted_path,
            "bonus_token_id": step.bonus_token_id,
            "committed": len(step.committed_ids),
            **self._new_tokens(step),
            "alternatives": [
                [rank, [[alternative.token_id, _rounded(alternative.logprob, 4)] for alternative in tokens]]
                for rank, tokens in step.alternatives
            ],
            "text": step.text,
            "ms": [_rounded(time, 3) for time in (step.draft_ms, step.verify_ms, step.other_ms)],
            "plan": self._new_plan(step),
        }
        return {name: value for name, value in packed.items() if name not in usual or usual[name] != value}

    def _named(self, ids: Iterable[str]) -> list[int | str]:
        """Return proposers as positions in the header; proposers that are not in it, such as "root", by name."""
        return [self._places.get(name, name) for name in ids]

    def _new_tokens(self, step: Step) -> dict[str, list]:
        """Return ids and bytes of the tokens that were not sent in this answer yet."""
        sent, new = self._pieces, {}
        tokens = [(node.token_id, node.piece) for node in step.nodes]
        tokens += [(node.target_choice, node.target_choice_piece) for node in step.nodes]
        tokens += [alternative[:2] for place in step.alternatives for alternative in place.tokens]
        if step.bonus_token_id is not None:
            tokens.append((step.bonus_token_id, step.bonus_piece))
        for token_id, piece in tokens:
            if sent.get(token_id) != piece:
                sent[token_id] = piece
                new[token_id] = pack_piece(piece)
        return {"new_tokens": list(new), "pieces": list(new.values())}

    def _new_plan(self, step: Step) -> dict:
        """Return only the fields of the plan that differ from the previous step."""
        plan = {field.name: getattr(step.plan, field.name) for field in fields(step.plan)}
        for name in ("expected_tokens", "expected_ms"):
            plan[name] = _rounded(plan[name], 2)
        plan["curve"] = [[nodes, _rounded(speed, 2)] for nodes, speed in plan["curve"]]
        before, self._plan = self._plan, plan
        return {name: value for name, value in plan.items() if name not in before or before[name] != value}

    def _evidence(self, nodes: tuple[Node, ...]) -> dict[str, list]:
        """Return rows by name and node: None if a node has none, the number of an earlier node with an equal row."""
        columns = {name: [None] * len(nodes) for node in nodes for name in node.evidence if name not in self._left_out}
        for name, column in columns.items():
            first: dict[tuple, int] = {}
            for i, node in enumerate(nodes):
                row = node.evidence.get(name)
                if row is not None:
                    earlier = first.setdefault(row, i)
                    column[i] = [self._short(value) for value in row] if earlier == i else earlier
        return columns


def pack_piece(piece: bytes) -> str | list[str]:
    """Return a token's bytes as text if they are valid UTF-8, else a one-element list with their hex digits."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return [piece.hex()]


def pack_header(header: Header) -> dict:
    """Return the header as the trace's own JSON, without folders of the server; it is sent once per answer."""
    packed = Trace(header).to_dict()["header"]
    for model in filter(None, (packed["target"], packed["drafter"])):
        if "name" in model:
            model["name"] = short_name(str(model["name"]))
    return packed


def to_json(value) -> str:
    """Return compact JSON; NaN and infinities are rejected, because a browser cannot read them."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _rounded(value: float | None, digits: int) -> float | int | None:
    return None if value is None or not math.isfinite(value) else _without_point(round(value, digits))


def _percent(chance: float | None) -> float | int | None:
    return None if chance is None else _rounded(100 * chance, 3)


def _shortened(value: float) -> float | int:
    """Round to one decimal from 1 on, and to three digits below."""
    return _without_point(round(value, 1) if abs(value) >= 1 else float(f"{value:.3g}"))


def _without_point(value: float) -> float | int:
    """Convert an integer value to int, which JSON writes without a decimal point."""
    return int(value) if value == int(value) else value
