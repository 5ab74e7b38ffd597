"""What happened, as plain frozen data: steps, traces, their metrics and their JSON.

Live runs, recordings, exports and imports share this one schema; what the browser gets of it is written by
`app/serving/packing.py`. No torch here: a step can be sent, stored, compared and replayed without a model. Words and
counts follow the speculative decoding literature: tau (drafted) is accepted tokens per step plus one, before any cut at
the end of the text; delivered tau counts what came into the text.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import NamedTuple, get_args, get_origin

from jakiro.system import write_atomically

SCHEMA_VERSION = 1


class TraceError(ValueError):
    """A file or a dictionary that is not a trace this version reads; the message says why."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a draft tree, with what the draft believed and what the target chose after it.

    Attributes:
        token_id, piece: the token and its bytes.
        parent, depth: index of the parent (-1 for the root), and distance from the root.
        draft_pass: the draft pass that proposed it, counted from 1; 0 for the root and where no pass was needed.
        score: sum of the calibrated log estimates along the path, 0 for the root; exp(score) is the node's chance of
            acceptance.
        draft_prob, target_prob: softmax of the logits at the sampling temperature (1 when greedy), before top-k, top-p,
            min-p and noise; the target's after penalties, biases and what is forbidden. None for the root, and
            draft_prob also where the draft gives none.
        proposer: "root", or the id of one of the header's proposers.
        also_proposed_by: ids of others that proposed the same node.
        evidence: further numbers of the method, by name. Jakiro records "router_weights", after softmax, of the row
            that the node came from (of the contrastive pair, for its nodes); "expert_contributions", for each expert
            its signed part w_e * (W[x] - mean W) . y_e of the logit; and "residual_contribution", the part
            (W[x] - mean W) . x of no expert. "twin" is the node whose row this node's children came from.
        target_choice, target_choice_piece: what the target itself chooses after this node.
        margin: gap between the target's first and second choice, after warping and noise.
        forbidden_by: the setting that forbids the token after its parent, such as "grammar"; None where none does.
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

    In logprobs the probability is by the target's own logits, before temperature and rules; see `Ranked` for the other.
    """

    token_id: int
    piece: bytes
    logprob: float


class Ranked(NamedTuple):
    """What could have come in a token's place, by the target at the answer's temperature (1 when greedy), after its
    rules and before top-k, top-p, min-p and noise.

    Attributes:
        rank: of the token that came; 1 is the likeliest.
        tokens: it, and then the likeliest that may come, best first.
    """

    rank: int
    tokens: tuple[Scored, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Why this step's tree has this size.

    Attributes:
        levels, nodes: of the tree, root included in nodes; 0 levels mean that nothing was drafted.
        why: the reason in one sentence.
        expected_tokens, expected_ms: the estimates behind the choice; None for a fixed tree.
        curve: the (nodes, expected tokens per second) that were compared; empty for a fixed tree.
        reread: top-k or top-p needed a full sort, so the target's choice was computed twice.
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
        nodes: the draft tree; node 0 is the root.
        accepted_path: accepted nodes from depth 1 on, root excluded, before any cut at the end of the answer.
        bonus_token_id, bonus_piece: the one token that the target adds itself, before any cut.
        committed_ids: what the step adds to the answer, cut after a stop token or at the token limit.
        text: what the step adds to the text; step 0 begins with the first token's text.
        draft_ms, verify_ms, other_ms: this answer's own milliseconds: drafting, the target's pass, and all else.
        plan: why the tree has this size.
        logprobs: where asked for, see `SamplingParams.logprobs`: for each of committed_ids, it and then the likeliest.
        alternatives: where asked for, see `SamplingParams.record_alternatives`: for each of committed_ids.
    """

    index: int
    nodes: tuple[Node, ...]
    accepted_path: tuple[int, ...]
    bonus_token_id: int
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
        return self.draft_ms + self.verify_ms + self.other_ms

    @property
    def tested_depth(self) -> int:
        """Levels with a draft token below an accepted node: the depths at which this draft was put to the test."""
        ends = {0, *self.accepted_path}
        return max((self.nodes[i].depth for i in range(1, len(self.nodes)) if self.nodes[i].parent in ends), default=0)


@dataclass(frozen=True, slots=True)
class Header:
    """Everything about a run that is known before its first step.

    Attributes:
        method: name of the drafting method, see `jakiro.drafters.registry`.
        created: when, in UTC, in ISO 8601.
        bit_identical: whether the probe at load found tree rows and plain rows equal to the last bit.
        messages: the conversation, dictionaries with "role" and "content"; empty where raw_prompt has a bare text.
        target: "name" and "sha256".
        drafter: "name" and, where weights or tables were read, their "sha256"; None for plain decoding.
        proposers: the sources that nodes name, each with "id", "label" and "sentence", in the order of their hues.
        device, dtype, numerics: as `JakiroGenerator.status` says them.
        device_profile: "device", its name in words, and for trees that size themselves what passes cost there.
        versions: of Python, Jakiro, torch and transformers, by name.
        sampling, tree: the settings by name.
        first_token_id, first_piece, first_text: the token that the prefill chose; it belongs to no step.
        prefill_ms: reading the prompt.
        special_tokens: names of the special tokens that occur, by id as a string.
        num_reused_tokens: how many of the prompt's tokens came from an earlier answer's cache.
        queue_ms: how long the question waited on the page; None elsewhere.
        first_logprobs: of the first token, as a step's `logprobs` has them of its own.
        first_alternatives: likewise; none or one.
        prefix_ids, prefix_pieces: the beginning of the answer that was given, before the first token; `first_text`
            begins with its text.
        forced: of these the tokens that somebody chose, as (place in the answer, id).
        template_arguments: what the chat template was told besides the messages, by name; None is nothing.
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
    """One run. It grows while its stream runs; all else follows from header, steps and end.

    Attributes:
        end_reason: None while it runs, then "eos", "length", "context" (no positions left), "stop" (a stop text came:
            its last token is committed, the text ends before it) or "stopped" (by `close`).
    """

    header: Header
    steps: list[Step] = field(default_factory=list)
    end_reason: str | None = None

    @property
    def token_ids(self) -> list[int]:
        """The answer's token ids, a given beginning and the stop token included, prompt excluded."""
        steps = (token for step in self.steps for token in step.committed_ids)
        return [*self.header.prefix_ids, self.header.first_token_id, *steps]

    @property
    def _num_decoded(self) -> int:
        """Tokens that steps added to the answer."""
        return sum(len(step.committed_ids) for step in self.steps)

    @property
    def text(self) -> str:
        """The answer's text."""
        return "".join(step.text for step in self.steps) if self.steps else self.header.first_text

    @property
    def tau(self) -> float | None:
        """Accepted tokens per step plus one, pooled over steps, before any cut; None without steps."""
        return pooled_tau(self.steps)

    @property
    def delivered_tau(self) -> float | None:
        """Tokens per step that came into the answer, after the cut at its end; None without steps."""
        return self._num_decoded / len(self.steps) if self.steps else None

    @property
    def decode_seconds(self) -> float:
        """Seconds of all steps, prefill excluded."""
        return sum(step.total_ms for step in self.steps) / 1000

    @property
    def step_ms(self) -> tuple[float, float, float]:
        """Mean milliseconds of a step: draft, verify, other. There must be steps."""
        sums = ([getattr(step, name) for step in self.steps] for name in ("draft_ms", "verify_ms", "other_ms"))
        return tuple(sum(values) / len(values) for values in sums)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first ÷ `decode_seconds`; None where nothing was decoded."""
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
        """The trace in JSON's types, pieces as hex; `from_dict` reads it."""
        return _plain({"header": self.header, "steps": self.steps, "end_reason": self.end_reason})

    def to_json(self) -> str:
        """`to_dict` as text without line breaks; `from_json` reads it."""
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Trace":
        """Reads what `to_json` wrote.

        Raises:
            TraceError: not JSON, a missing or mistyped field, another schema version, or a tree that is no tree.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"This file is not a trace: it is not JSON ({error}).") from error
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: dict) -> "Trace":
        """Reads what `to_dict` gave; errors are `from_json`'s."""
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
            what = f"the field “{error.args[0]}” is missing" if isinstance(error, KeyError) else error
            raise TraceError(f"This file is not a trace: {what}.") from error
        return trace


def pooled_tau(steps: Sequence[Step]) -> float | None:
    """Mean accepted length plus one over steps of one or several runs; None for no steps."""
    return sum(len(step.accepted_path) for step in steps) / len(steps) + 1 if steps else None


def acceptance_by_depth(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """(kept, tested) for depth 1, 2, …: a depth is tested when it has a candidate under a kept node."""
    depths = max((step.tested_depth for step in steps), default=0)
    return [
        (sum(len(step.accepted_path) >= depth for step in steps), sum(step.tested_depth >= depth for step in steps))
        for depth in range(1, depths + 1)
    ]


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first token in which two answers differ; None when equal. A shorter answer differs at its end."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


# Left out of files where there are none
_WHERE_ASKED = {
    "logprobs", "first_logprobs", "forbidden_by", "alternatives", "first_alternatives", "prefix_ids", "prefix_pieces",
    "forced", "template_arguments",
}  # fmt: skip


def _plain(value):
    """Dataclasses and tuples to JSON types, bytes to hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        named = {f.name: getattr(value, f.name) for f in fields(value)}
        return {name: _plain(item) for name, item in named.items() if item or name not in _WHERE_ASKED}
    return value


def _read(kind, value):
    """What is annotated as this kind, from JSON's types."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is bytes:
        return bytes.fromhex(value)
    if kind is float and not isinstance(value, (int, float)):
        raise TraceError(f"This file is not a trace: {value!r} stands where a number should.")
    if origin is UnionType:
        return None if value is None else _read(inner[0], value)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        return tuple(_read(each, item) for each, item in zip(kinds, value, strict=True))
    if origin is dict:
        return {name: _read(inner[1], item) for name, item in value.items()}
    if kind in (Scored, Ranked):
        return kind(*_read(tuple[tuple(kind.__annotations__.values())], value))
    return _read_fields(kind, value) if is_dataclass(kind) else value


def _read_fields(kind, values: dict):
    missing = sorted(f.name for f in fields(kind) if f.default is MISSING is f.default_factory and f.name not in values)
    if missing:
        raise TraceError(f"This file is not a trace: a {kind.__name__.lower()} lacks the field “{missing[0]}”.")
    return kind(**{f.name: _read(f.type, values[f.name]) for f in fields(kind) if f.name in values})


def _check_step(position: int, step: Step) -> None:
    if step.index != position:
        raise TraceError(f"This file is not a trace: step {position} says it is step {step.index}.")
    if not step.nodes:
        raise TraceError(f"This file is not a trace: step {position} has no nodes.")
    for index, node in enumerate(step.nodes):
        parent_depth = step.nodes[node.parent].depth if 0 <= node.parent < index else -1
        if (node.parent == -1) != (index == 0) or node.parent >= index or node.depth != parent_depth + 1:
            raise TraceError(f"This file is not a trace: node {index} of step {position} does not fit its parent.")
    before = 0
    for index in step.accepted_path:
        if not 0 < index < len(step.nodes) or step.nodes[index].parent != before:
            raise TraceError(f"This file is not a trace: the accepted path of step {position} is no path.")
        before = index
