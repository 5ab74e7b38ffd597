"""Traces of runs as plain data: steps, metrics and JSON.

Live runs, recordings, exports and imports share this schema; `app/serving/packing.py` writes the form for the browser.
The module does not import torch, so that a step can be sent, stored, compared and replayed without a model. Terms
follow the literature: tau is the number of accepted tokens per step plus one, before any cut at the end of the text;
delivered tau counts only the tokens of the text.
"""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

from jakiro.system import write_atomically

SCHEMA_VERSION = 1


class TraceError(ValueError):
    """Raised for a file or dictionary that is not a trace of this version; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a draft tree with the estimates of the draft and the choice of the target after it.

    Attributes:
        token_id, piece: Token and its bytes.
        parent, depth: Index of the parent (-1 for the root), and distance from the root.
        draft_pass: 1-based draft pass that proposed the node; 0 for the root and for nodes that needed no pass.
        score: Sum of the calibrated log estimates along the path, 0 for the root; exp(score) is the estimated
            probability of acceptance.
        draft_prob, target_prob: softmax of the logits at the sampling temperature (1 when greedy), before top-k, top-p,
            min-p and noise; the target's after penalties, biases and forbidden tokens. None for the root, and
            draft_prob also if the draft has no probability.
        proposer: "root", or the id of one of the header's proposers.
        also_proposed_by: ids of others that proposed the same node.
        evidence: Other numbers of the method, by name. Jakiro records "router_weights", after softmax, of the row
            that the node came from (of the contrastive pair, for its nodes); "expert_contributions", for each expert
            its signed part w_e * (W[x] - mean W) . y_e of the logit; and "residual_contribution", the part
            (W[x] - mean W) . x of no expert. "twin" is the node whose row this node's children came from.
        target_choice, target_choice_piece: The target's own choice after this node, and its bytes.
        margin: Gap between the target's first and second choice after warping and noise.
        forbidden_by: Setting that forbids the token after its parent, such as "grammar", or None.
    """

    token_id: int
    piece: bytes
    parent: int
    depth: int
    draft_pass: int
    score: float
    draft_prob: float | None
    target_prob: float | None
    proposer: str
    also_proposed_by: tuple[str, ...]
    evidence: dict[str, tuple[float, ...]]
    target_choice: int
    target_choice_piece: bytes
    margin: float
    forbidden_by: str | None = None


class Scored(NamedTuple):
    """A token, its bytes, and the log of its probability.

    The log is −inf for a token that is forbidden or has the logit NaN; JSON contains null there.

    In `logprobs` the probability is that of the target's logits before temperature and logits processors; see `Ranked`
    for alternatives.
    """

    token_id: int
    piece: bytes
    logprob: float


class Ranked(NamedTuple):
    """The committed token and its alternatives, with the target's probabilities at the request's temperature (1 if
    greedy), after all logits processors and before top-k, top-p, min-p and noise.

    Attributes:
        rank: 1-based rank of the committed token.
        tokens: The committed token, then the most likely tokens, best first.
    """

    rank: int
    tokens: tuple[Scored, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a step's tree and its reason.

    Attributes:
        levels, nodes: Depth and number of nodes, root included; 0 levels mean that nothing was drafted.
        why: Reason in one sentence.
        expected_tokens, expected_ms: Estimates for the choice; None for a tree of fixed size.
        curve: Compared sizes as (nodes, expected tokens per second); empty for a tree of fixed size.
        reread: Whether top-k or top-p required a full sort, so that the target's choice was computed twice.
    """

    levels: int
    nodes: int
    why: str
    expected_tokens: float | None = None
    expected_ms: float | None = None
    curve: tuple[tuple[int, float], ...] = ()
    reread: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One draft-verify cycle.

    Attributes:
        index: counted from 0.
        nodes: Draft tree; node 0 is the root.
        accepted_path: Accepted nodes from depth 1 on, root excluded, before any cut at the end of the completion.
        bonus_token_id, bonus_piece: The token that the target adds itself, before any cut; None and no bytes if no
            token can follow the accepted path, as in the last step of an answer that ends with "no_token".
        committed_ids: Tokens that the step adds to the completion: the accepted path and the bonus token, cut after a
            stop token, after the token that completes a stop text, or at the token limit.
        text: Text that the step adds; step 0 also contains the first token's text, at its start.
        draft_ms, verify_ms, other_ms: Milliseconds of this request for drafting, for the target's pass over the tree,
            and for the rest, which includes the comparison with the target's choices and the commit.
        plan: Size of the drafted tree and its reason.
        logprobs: If requested (`SamplingParams.logprobs`), each committed token and the most likely ones.
        alternatives: If requested (`SamplingParams.record_alternatives`), one entry for each of committed_ids.
    """

    index: int
    nodes: tuple[Node, ...]
    accepted_path: tuple[int, ...]
    bonus_token_id: int | None
    bonus_piece: bytes
    committed_ids: tuple[int, ...]
    text: str
    draft_ms: float
    verify_ms: float
    other_ms: float
    plan: Plan
    logprobs: tuple[tuple[Scored, ...], ...] = ()
    alternatives: tuple[Ranked, ...] = ()

    def __repr__(self) -> str:
        nodes, accepted = len(self.nodes), len(self.accepted_path)
        return f"Step({self.index}: {nodes} nodes, {accepted} accepted, {self.text!r}, {self.total_ms:.1f} ms)"

    def _repr_html_(self) -> str:
        from jakiro.display import step_html

        return step_html(self)

    @property
    def total_ms(self) -> float:
        """Milliseconds of the step."""
        return self.draft_ms + self.verify_ms + self.other_ms

    @property
    def tested_depth(self) -> int:
        """Depth of the deepest candidate below an accepted node, or 0."""
        ends = {0, *self.accepted_path}
        return max((self.nodes[i].depth for i in range(1, len(self.nodes)) if self.nodes[i].parent in ends), default=0)


@dataclass(frozen=True, slots=True)
class Header:
    """The properties of a run that are fixed before its first step.

    Attributes:
        method: Name of the drafting method, see `jakiro.drafters.registry`.
        created: Time of creation in UTC, in ISO 8601.
        bit_identical: Whether the probe at load found tree rows and plain rows bitwise equal.
        messages: Conversation as dictionaries with "role" and "content"; empty if raw_prompt is set.
        target: "name" and "sha256".
        drafter: "name", and "sha256" if it has weights or tables; None for plain decoding.
        proposers: Sources of candidates, each with "id", "label" and "sentence", in the order of their hues.
        device, dtype, numerics: As in `JakiroGenerator.status`.
        device_profile: "device" is the device's name; for trees of automatic size also the measured costs of passes.
        versions: Versions of Python, Jakiro, torch and transformers, by name.
        sampling, tree: Settings by name.
        first_token_id, first_piece, first_text: The token chosen by the prefill; it belongs to no step.
        prefill_ms: Milliseconds for reading the prompt.
        special_tokens: Names of the special tokens that occur, by id as a string.
        num_reused_tokens: Number of prompt tokens reused from the prefix cache.
        queue_ms: Milliseconds in the queue of the page, or None.
        first_logprobs: Log probabilities of the first token, as in `Step.logprobs`.
        first_alternatives: Alternatives of the first token; empty or one entry.
        prefix_ids, prefix_pieces: Given prefix of the completion, before the first token; `first_text` starts with
            its text.
        forced: Tokens of the prefix that the user selected, as (index, id).
        template_arguments: Additional arguments of the chat template by name, or None.
    """

    method: str
    created: str
    bit_identical: bool
    messages: tuple[dict, ...]
    raw_prompt: str | None
    num_prompt_tokens: int
    target: dict
    drafter: dict | None
    proposers: tuple[dict, ...]
    device: str
    dtype: str
    numerics: str
    device_profile: dict
    versions: dict
    sampling: dict
    tree: dict
    first_token_id: int
    first_piece: bytes
    first_text: str
    prefill_ms: float
    special_tokens: dict = field(default_factory=dict)
    num_reused_tokens: int = 0
    queue_ms: float | None = None
    first_logprobs: tuple[Scored, ...] = ()
    first_alternatives: tuple[Ranked, ...] = ()
    prefix_ids: tuple[int, ...] = ()
    prefix_pieces: tuple[bytes, ...] = ()
    forced: tuple[tuple[int, int], ...] = ()
    template_arguments: dict | None = None
    schema_version: int = SCHEMA_VERSION


@dataclass(slots=True)
class Trace:
    """A run: its header, its steps and the reason of its end. It grows while its stream runs.

    Attributes:
        end_reason: None while it runs, then "eos", "length", "context" (no positions left), "stop" (a stop text:
            its last token is committed, the text ends before it), "no_token" (the settings forbid every next token, or
            the target's scores are NaN; the last step then commits no bonus token) or "stopped" (by `close`).
    """

    header: Header
    steps: list[Step] = field(default_factory=list)
    end_reason: str | None = None

    @property
    def token_ids(self) -> list[int]:
        """Token ids of the completion, a given prefix and the stop token included."""
        steps = (token for step in self.steps for token in step.committed_ids)
        return [*self.header.prefix_ids, self.header.first_token_id, *steps]

    @property
    def _num_decoded(self) -> int:
        """Number of tokens that steps added to the completion."""
        return sum(len(step.committed_ids) for step in self.steps)

    @property
    def text(self) -> str:
        """Text of the completion."""
        return "".join(step.text for step in self.steps) if self.steps else self.header.first_text

    @property
    def tau(self) -> float | None:
        """Accepted tokens per step plus one, before any cut; None without steps."""
        return pooled_tau(self.steps)

    @property
    def delivered_tau(self) -> float | None:
        """Tokens of the completion per step, after the cut at its end; None without steps."""
        return self._num_decoded / len(self.steps) if self.steps else None

    @property
    def decode_seconds(self) -> float:
        """Seconds of all steps, without the prefill."""
        return sum(step.total_ms for step in self.steps) / 1000

    @property
    def step_ms(self) -> tuple[float, float, float]:
        """Mean milliseconds of a step: draft, verify, other. Requires at least one step."""
        draft, verify, other = (
            sum(getattr(step, name) for step in self.steps) / len(self.steps)
            for name in ("draft_ms", "verify_ms", "other_ms")
        )
        return draft, verify, other

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first one divided by `decode_seconds`; None if no time was measured."""
        seconds = self.decode_seconds
        return self._num_decoded / seconds if seconds > 0 else None

    def __repr__(self) -> str:
        speed = f", {self.tokens_per_second:.1f} tokens/s, τ {self.tau:.2f}" if self.tokens_per_second else ""
        return f"Trace({self.header.method}: {len(self.token_ids)} tokens, {len(self.steps)} steps{speed})"

    def _repr_html_(self) -> str:
        from jakiro.display import trace_html

        return trace_html(self)

    def to_dataframe(self):
        """Return a pandas DataFrame with one row per step; needs the package pandas."""
        from jakiro.display import to_dataframe

        return to_dataframe(self)

    def save(self, path: str | os.PathLike) -> None:
        """Write the trace to a JSON file; `load` reads it."""
        write_atomically(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Trace":
        """Read a file of `save` or of `generate --trace`.

        Raises:
            TraceError: the file is not a trace of this version.
            OSError: the file cannot be read.
        """
        return cls.from_json(Path(path).read_bytes())

    def to_dict(self) -> dict:
        """Return the trace in JSON types, bytes as hex; `from_dict` reads it."""
        return _plain({"header": self.header, "steps": self.steps, "end_reason": self.end_reason})

    def to_json(self) -> str:
        """Return `to_dict` as JSON in one line; `from_json` reads it."""
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Trace":
        """Read the output of `to_json`.

        Raises:
            TraceError: the text is not JSON, a field is missing or has a wrong type, the schema version is unsupported,
                or the nodes of a step do not form a tree.
        """
        try:
            values = json.loads(text, parse_constant=_reject_constant)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"This file is not a trace: it is not JSON ({error}).") from error
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: dict) -> "Trace":
        """Read the output of `to_dict`; raises as `from_json` does."""
        if not isinstance(values, dict):
            raise TraceError(f"This file is not a trace: expected an object, found {type(values).__name__}.")
        try:
            header = values["header"]
            version = header.get("schema_version") if isinstance(header, dict) else None
            if version != SCHEMA_VERSION:
                raise TraceError(f"This trace uses format {version}; this version reads {SCHEMA_VERSION}.")
            trace = cls(
                header=_read(Header, header),
                steps=[_read(Step, step) for step in values["steps"]],
                end_reason=values.get("end_reason"),
            )
            for position, step in enumerate(trace.steps):
                _check_step(position, step)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            if isinstance(error, TraceError):
                raise
            problem = f"the field “{error.args[0]}” is missing" if isinstance(error, KeyError) else error
            raise TraceError(f"This file is not a trace: {problem}.") from error
        return trace


def pooled_tau(steps: Sequence[Step]) -> float | None:
    """Return the mean accepted length plus one over steps of one or several runs, or None without steps."""
    return sum(len(step.accepted_path) for step in steps) / len(steps) + 1 if steps else None


def acceptance_by_depth(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Return (accepted, tested) counts for depths 1, 2, …; a depth is tested if an accepted node has a child there."""
    depths = max((step.tested_depth for step in steps), default=0)
    return [
        (sum(len(step.accepted_path) >= depth for step in steps), sum(step.tested_depth >= depth for step in steps))
        for depth in range(1, depths + 1)
    ]


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the index of the first different token, or None if equal; a shorter sequence differs at its end."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


# JSON types accepted for a field's type, and the name of that type in messages
_KINDS = {
    int: (int, "an integer"),
    float: ((int, float), "a number"),
    str: (str, "a string"),
    bool: (bool, "true or false"),
    dict: (dict, "an object"),
}
# Optional fields, not written if they are empty
_WHERE_ASKED = {
    "logprobs", "first_logprobs", "forbidden_by", "alternatives", "first_alternatives", "prefix_ids", "prefix_pieces",
    "forced", "template_arguments",
}  # fmt: skip


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _plain(value: Any) -> Any:
    """Convert dataclasses and tuples to JSON types, bytes to hex, and non-finite numbers to None."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        named = {f.name: getattr(value, f.name) for f in fields(value)}
        return {name: _plain(item) for name, item in named.items() if item or name not in _WHERE_ASKED}
    return value


def _read(kind: Any, value: Any) -> Any:
    """Convert a JSON value to an annotated type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is bytes:
        return bytes.fromhex(value)
    if kind in _KINDS:
        types, name = _KINDS[kind]
        is_number = kind in (int, float)
        if not isinstance(value, types) or (is_number and (isinstance(value, bool) or not math.isfinite(value))):
            raise TraceError(f"This file is not a trace: expected {name}, got {value!r}.")
        return value
    if origin is UnionType:
        return None if value is None else _read(inner[0], value)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        return tuple(_read(item_kind, item) for item_kind, item in zip(kinds, value, strict=True))
    if origin is dict:
        return {name: _read(inner[1], item) for name, item in value.items()}
    if kind is Scored:
        # null is the log of a chance of 0
        token_id, piece, logprob = value
        return Scored(
            _read(int, token_id), _read(bytes, piece), -math.inf if logprob is None else _read(float, logprob)
        )
    if kind is Ranked:
        return kind(*_read(tuple[tuple(kind.__annotations__.values())], value))
    return _read_fields(kind, value) if is_dataclass(kind) else value


def _read_fields(kind: Any, values: dict) -> Any:
    missing = sorted(f.name for f in fields(kind) if f.default is MISSING is f.default_factory and f.name not in values)
    if missing:
        raise TraceError(f"This file is not a trace: a {kind.__name__.lower()} has no field “{missing[0]}”.")
    return kind(**{f.name: _read(f.type, values[f.name]) for f in fields(kind) if f.name in values})


def _check_step(position: int, step: Step) -> None:
    if step.index != position:
        raise TraceError(f"This file is not a trace: step {position} has the index {step.index}.")
    if not step.nodes:
        raise TraceError(f"This file is not a trace: step {position} has no nodes.")
    for index, node in enumerate(step.nodes):
        parent_depth = step.nodes[node.parent].depth if 0 <= node.parent < index else -1
        if (node.parent == -1) != (index == 0) or node.parent >= index or node.depth != parent_depth + 1:
            raise TraceError(f"This file is not a trace: node {index} of step {position} does not fit its parent.")
    before = 0
    for index in step.accepted_path:
        if not 0 < index < len(step.nodes) or step.nodes[index].parent != before:
            raise TraceError(f"This file is not a trace: the accepted path of step {position} is not a path.")
        before = index
