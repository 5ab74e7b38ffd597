"""A generator without a model: plausible, seeded traces at a chosen pace, with the interface of `JakiroGenerator`.

The answer is a fixed list of pieces, so plain decoding and Jakiro produce the same text; trees are grown at random
around it.
"""

import math
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN
from jakiro.trace import Header, Node, Plan, Ranked, Scored, Step, Trace

ANSWER = (
    "The sky is blue because the air scatters short waves of light more than long ones. Sunlight holds all colours, "
    "and on its way through the air the blue part is sent in every direction, so it reaches us from all over the sky. "
    "In the evening the light takes a longer way:\n\n- most of the blue is gone by then\n- what is left looks red. 🌍 "
)
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
OTHERS = [" a", " of", " light", "\n", " very", " and", " that", ",", " since", " in", " scattered", " wave", " it"]
STOP_ID = 2


def default_answer() -> list[bytes]:
    """Return the words of the answer; its four-byte character is two tokens, as in byte-level vocabularies."""
    pieces = []
    for word in ANSWER.split(" "):
        piece = ((" " if pieces else "") + word).encode()
        pieces += [piece[:-2], piece[-2:]] if word.endswith("🌍") else [piece] if word else []
    return pieces


class FakeStream:
    """Iterator of steps with a growing trace, returned by `FakeGenerator.stream`."""

    def __init__(self, owner: "FakeGenerator", trace: Trace, steps: Iterator[Step]) -> None:
        self._owner, self.trace, self._steps = owner, trace, steps

    def __iter__(self):
        return self

    def __next__(self) -> Step:
        step = next(self._steps)
        self.trace.steps.append(step)
        return step

    def close(self) -> None:
        self._steps.close()
        if self.trace.end_reason is None:
            self.trace.end_reason = "stopped"
        self._owner.closed += 1


class FakeRace:
    """Iterator of (method, step), returned by `FakeGenerator.race`: the lane with the least time is next."""

    def __init__(self, streams: dict[str, FakeStream]) -> None:
        self._streams = streams
        self.traces = {method: stream.trace for method, stream in streams.items()}
        self._pairs = self._run()

    def _run(self):
        running = dict(self._streams)
        while running:
            method = min(running, key=lambda name: self.traces[name].decode_seconds)
            try:
                yield method, next(running[method])
            except StopIteration:
                del running[method]

    def __iter__(self):
        return self._pairs

    def close(self) -> None:
        self._pairs.close()
        for stream in self._streams.values():
            stream.close()


class FakeGenerator:
    """Generator of seeded traces.

    Attributes:
        pace: multiple of a step's recorded time to sleep after it; 0 does not sleep.
        gate: answers start only while it is set. It is set at first; a test may clear it.
    """

    max_prompt_tokens = 500
    known_methods = METHODS
    usual = DEFAULT

    def __init__(
        self, pieces: list[bytes] | None = None, pace: float = 0.0, numerics: str = "exact", target: str = "Fake-135M"
    ) -> None:
        self.pieces = pieces or default_answer()
        self.pace, self.target = pace, target
        self.numerics = self.loaded_numerics = numerics
        self.gate = threading.Event()
        self.gate.set()
        self.closed = self.active = self.most_active = 0
        self.template_arguments = None

    @property
    def profile(self) -> None:
        return None

    def with_numerics(self, numerics: str) -> "FakeGenerator":
        self.numerics = numerics
        return self

    @property
    def status(self) -> dict:
        return {
            "target": self.target, "head": "fake-head", "device": "cpu", "dtype": "float32",
            "numerics": self.loaded_numerics,
            "bit_identical": True, "notices": [],
        }  # fmt: skip

    def num_prompt_tokens(self, messages, raw=False, template_arguments=None) -> int:
        if raw:
            return len(messages.split())
        return sum(len(message["content"].split()) for message in messages)

    def stream(self, messages, params, method=DEFAULT.name, tree=None, prefix=(), forced=()) -> FakeStream:
        question = messages[-1]["content"]
        if len(question.split()) > self.max_prompt_tokens:
            raise ValueError(
                f"Your prompt has {len(question.split()):,} tokens; this model reads {self.max_prompt_tokens}. "
                f"Shorten it by {len(question.split()) - self.max_prompt_tokens:,}."
            )
        method = self.known_methods.named(method)
        if method is not PLAIN and not method.needs.head:
            tree = TreeConfig(width=1, depth=6, nodes=7)
        pieces = [question.encode() if piece == b"{question}" else piece for piece in self.pieces]
        for place in forced:
            pieces[place] = piece_of(prefix[place], pieces)
        trace = Trace(self._header(messages, params, method, tree, pieces, tuple(prefix), forced))
        nodes = 1 if method is PLAIN else tree.nodes
        return FakeStream(self, trace, self._steps(trace, pieces, params, nodes, tree.depth if tree else 0))

    def race(
        self, messages, params, methods=(PLAIN.name, DEFAULT.name), tree=None, raw=False, prefixes=None,
        template_arguments=None, answer_prefix_ids=(), forced=(),
    ) -> FakeRace:  # fmt: skip
        self.template_arguments = template_arguments
        if raw:
            messages = [{"role": "user", "content": messages}]
        prefix = answer_prefix_ids, forced or ()
        return FakeRace({method: self.stream(messages, params, method, tree, *prefix) for method in methods})

    def _header(self, messages, params, method, tree, pieces, prefix, forced) -> Header:
        first = len(prefix)
        return Header(
            method=method.name, created="2026-01-02T03:04:05+00:00", bit_identical=True, messages=tuple(messages),
            raw_prompt=None, num_prompt_tokens=40, target={"name": self.target, "sha256": "0" * 64},
            drafter={"name": "fake-head", "sha256": "1" * 64} if method.needs.head else None,
            proposers=tuple(method.to_dict()["proposers"]), device="cpu", dtype="float32", numerics=self.numerics,
            device_profile={"device": "2-core CPU"}, versions={"jakiro": "0.9.0"},
            sampling=params.to_dict(),
            tree={"nodes": tree.nodes if tree else 1, "depth": tree.depth if tree else 0,
                  "policy": tree.policy if tree else "fixed"},
            first_token_id=1000 + first, first_piece=pieces[first],
            first_text=b"".join(pieces[: first + 1]).decode("utf-8", "replace"),
            prefix_ids=prefix, prefix_pieces=tuple(pieces[:first]),
            forced=tuple((place, prefix[place]) for place in forced),
            first_alternatives=(with_alternatives(1000 + first, pieces[first]),) if params.record_alternatives else (),
            prefill_ms=84.0, template_arguments=self.template_arguments, special_tokens={str(STOP_ID): "<|im_end|>"},
        )  # fmt: skip

    def _steps(self, trace: Trace, pieces: list[bytes], params, nodes: int, depth: int) -> Iterator[Step]:
        """Yield all steps; the stop token follows the pieces, and the length limit may cut inside a block."""
        ids = [1000 + index for index in range(len(pieces))] + [STOP_ID]
        pieces = [*pieces, b"<|im_end|>"]
        chance = random.Random(f"{params.seed}-{nodes}-{depth}")
        position, limit = len(trace.header.prefix_ids) + 1, params.max_new_tokens
        spoken = trace.header.first_text
        written = b"".join(pieces[:position])
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            self.gate.wait(600)
            if limit == 1:
                trace.end_reason = "length"
            for index in range(len(ids)):
                if trace.end_reason:
                    return
                names = [proposer["id"] for proposer in trace.header.proposers]
                step = grow_step(index, chance, ids, pieces, position, nodes, depth, limit, names)
                if params.grammar and nodes > 1:
                    step = replace(step, nodes=tuple(map(partial(_forbidden, step), range(nodes))))
                if params.record_alternatives:
                    tokens = zip(step.committed_ids, pieces[position:], strict=False)
                    step = replace(step, alternatives=tuple(with_alternatives(*token) for token in tokens))
                if self.pace:
                    time.sleep(step.total_ms / 1000 * self.pace)
                position += len(step.committed_ids)
                start = position - len(step.committed_ids)
                written += b"".join(piece for piece in pieces[start:position] if piece != b"<|im_end|>")
                text = written.decode("utf-8", "ignore")
                addition = text if index == 0 else text[len(spoken) :]
                spoken = text
                if STOP_ID in step.committed_ids:
                    trace.end_reason = "eos"
                elif position >= limit:
                    trace.end_reason = "length"
                yield replace(step, text=addition)
        finally:
            self.active -= 1


def finished_race(pieces: list[bytes] | None = None, length: int = 256, **tree) -> FakeRace:
    """Return a finished race of plain decoding against Jakiro."""
    race = FakeGenerator(pieces).race(QUESTION, SamplingParams(max_new_tokens=length), tree=TreeConfig(**tree))
    list(race)
    return race


def traces_of(pieces: list[bytes] | None = None, length: int = 256, **tree) -> dict[str, dict]:
    """Return the traces of such a race in the format of files."""
    race = finished_race(pieces, length, **tree)
    return {method: trace.to_dict() for method, trace in race.traces.items()}


# The alternatives of every token of a fake answer
ALTERNATIVES = (b" other", b" further", b"\xe4", b"\n")


def with_alternatives(token_id: int, piece: bytes) -> Ranked:
    """Return a token of a fake answer with its alternatives, the last of which is the stop token."""
    scored = Scored(token_id, piece, math.log(0.6))
    alternatives = (Scored(2000 + i, other_piece, math.log(0.2) - i) for i, other_piece in enumerate(ALTERNATIVES))
    return Ranked(1, (scored, scored, *alternatives, Scored(STOP_ID, b"<|im_end|>", math.log(0.005))))


def piece_of(token_id: int, pieces: list[bytes]) -> bytes:
    """Return the bytes of a token of a fake answer or of one of its alternatives."""
    return ALTERNATIVES[token_id - 2000] if token_id >= 2000 else pieces[token_id - 1000]


def _forbidden(step: Step, index: int) -> Node:
    """Return a node of a step, marked as forbidden by the grammar if it was rejected."""
    node = step.nodes[index]
    refused = node.parent in (0, *step.accepted_path) and index not in step.accepted_path
    return replace(node, forbidden_by="grammar") if refused else node


def grow_step(index, chance, ids, pieces, position, num_nodes, depth, limit, proposers=()) -> Step:
    """Return one step at `position`: a random tree with a prefix of the text, cut at the stop token and the limit.

    Args:
        index: number of the step.
        chance: a `random.Random`.
        ids, pieces: tokens of the whole answer and their bytes.
        position: index in `ids` of the first token to commit.
        num_nodes: nodes of the tree, root included; 1 for plain decoding.
        depth: maximum depth of the tree.
        limit: maximum number of tokens of the answer.
        proposers: names of the proposers of the nodes.
    """
    num_right = 0
    if num_nodes > 1:
        while num_right < min(depth, len(ids) - position - 1) and chance.random() < 0.68:
            num_right += 1
    records = [{"token": position - 1, "parent": -1, "depth": 0, "score": 0.0, "right": True}]
    right = 0
    for level in range(1, num_right + 1):
        score = records[right]["score"] - chance.uniform(0.1, 0.9)
        records.append({"token": position + level - 1, "parent": right, "depth": level, "score": score, "right": True})
        right = len(records) - 1
    while len(records) < num_nodes:
        parent = chance.randrange(len(records))
        if records[parent]["depth"] >= depth:
            continue
        siblings = {record["token"] for record in records if record["parent"] == parent}
        siblings.add(position + records[parent]["depth"] if records[parent]["right"] else None)
        token = -1 - chance.randrange(len(OTHERS))
        if token in siblings:
            token -= len(OTHERS) * (1 + len(records))
        score = records[parent]["score"] - chance.uniform(0.3, 2.6)
        node = {"token": token, "parent": parent, "depth": records[parent]["depth"] + 1, "score": score, "right": False}
        records.append(node)
    nodes = tuple(_node(record, chance, ids, pieces, position, depth, proposers) for record in records)
    path = tuple(range(1, num_right + 1))
    bonus = position + num_right
    committed = []
    for token_id in ids[position : bonus + 1]:
        committed.append(token_id)
        if token_id == STOP_ID or position + len(committed) >= limit:
            break
    drafted = num_nodes > 1
    return Step(
        index=index, nodes=nodes, accepted_path=path, bonus_token_id=ids[bonus], bonus_piece=pieces[bonus],
        committed_ids=tuple(committed), text="", draft_ms=12.0 + chance.random() if drafted else 0.0,
        verify_ms=(48.0 if drafted else 36.0) + 3 * chance.random(), other_ms=1.0 + chance.random(),
        plan=Plan(
            levels=depth if drafted else 0, nodes=num_nodes, why="24 candidates pay best here.",
            expected_tokens=2.6 if drafted else None, expected_ms=64.0 if drafted else None,
            curve=tuple((count, 28 + 14 * math.log2(count) - 0.45 * count) for count in (1, 4, 8, 16, 24, 32, 48))
            if drafted else (),
        ),
    )  # fmt: skip


def _node(record, chance, ids, pieces, position, depth, proposers) -> Node:
    """Return a node by one of two experts, or on the last level by the third proposer; a single proposer makes all."""
    level, token = record["depth"], record["token"]
    piece = pieces[token] if token >= 0 else OTHERS[token % len(OTHERS)].encode()
    choice = min(position + level, len(ids) - 1) if record["right"] else chance.randrange(len(ids) - 1)
    experts = len(proposers) > 2
    from_pair = experts and level == depth and level > 0
    proposer = "root" if level == 0 else proposers[2] if from_pair else chance.choice(proposers[:2])
    also = experts and proposer == proposers[0] and chance.random() < 0.1
    weight = random.Random(100 * position + record["parent"]).uniform(0.25, 0.75)  # siblings share one pass
    return Node(
        token_id=ids[token] if token >= 0 else 5000 - token, piece=piece, parent=record["parent"], depth=level,
        draft_pass=level - from_pair if experts else 0, score=record["score"],
        draft_prob=None if level == 0 else min(1.0, math.exp(record["score"] / level) * 0.9),
        target_prob=None if level == 0 else chance.random() ** 2, proposer=proposer,
        also_proposed_by=(proposers[2],) if also else (),
        evidence={
            **({"router_weights": (weight, 1 - weight)} if experts and level else {}),
            **({"expert_contributions": (chance.uniform(-2, 6), chance.uniform(-2, 6))}
               if experts and level and not from_pair else {}),
        },
        target_choice=ids[choice], target_choice_piece=pieces[choice],
        margin=chance.uniform(0.01, 4),
    )  # fmt: skip
