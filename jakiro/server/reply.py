"""An answer's events as OpenAI's objects: chunks of a stream, or one object; usage, logprobs, and who proposed what."""

import codecs
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jakiro import __version__
from jakiro.server.request import Wish
from jakiro.trace import Header, Ranked, Scored, Step, Trace

# An answer's end in OpenAI's words; what ends otherwise was cut by a limit
_FINISHED = {"eos": "stop", "stop": "stop", "no_token": "stop"}
# What OpenAI writes for a token whose chance is nothing
_LEAST_LOGPROB = -9999.0
TARGET = "target"

# What we add to OpenAI's fields stands under this name
EXTENSION = "jakiro"


class Part(NamedTuple):
    """What a step adds: text, logprobs by token where asked for, and what else was asked for of each token, by name."""

    text: str
    logprobs: Sequence[tuple[Scored, ...]] = ()
    own: Mapping[str, Sequence[dict]] = {}


class Reply:
    """One answer on its way to a client.

    Attributes:
        trace: of the events so far; None before the header.
    """

    def __init__(self, wish: Wish, model: str) -> None:
        self._wish, self.trace = wish, None
        self._parts: list[Part] = []
        self._offsets = TextOffsets()
        kind = "text_completion" if wish.raw else "chat.completion"
        self._head = {
            "id": f"{'cmpl' if wish.raw else 'chatcmpl'}-{uuid.uuid4().hex}",
            "object": kind if wish.raw or not wish.body.stream else f"{kind}.chunk",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"jakiro-{__version__}",
        }

    def take(self, event: tuple[str, object, object]) -> list[dict]:
        """The chunks that an event makes, of which a client that does not stream gets none."""
        kind, _, payload = event
        if kind == "header":
            self.trace = Trace(payload)
            return [] if self._wish.raw else [self._chunk(Part(""), role={"role": "assistant"})]
        if kind == "step":
            self.trace.steps.append(payload)
            return self._add(self._part(payload))
        self.trace.end_reason = payload
        before = [] if self.trace.steps else self._add(self._part(None))
        last = self._chunk(Part(""), reason=self._reason())
        usage = [self._head | {"choices": []} | self._numbers()] if self._wish.body.stream_options.include_usage else []
        return [*before, last | self._told({}), *usage]

    def whole(self) -> dict:
        """The answer as one object."""
        text = "".join(part.text for part in self._parts)
        logprobs = [each for part in self._parts for each in part.logprobs]
        choice = {"index": 0, "finish_reason": self._reason()}
        if self._wish.raw:
            choice["text"] = text
        else:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        choice["logprobs"] = self._logprobs(logprobs)
        names = self._parts[0].own if self._parts else ()
        told = self._told({name: [each for part in self._parts for each in part.own[name]] for name in names})
        return self._head | {"choices": [choice]} | self._numbers() | told

    def _part(self, step: Step | None) -> Part:
        """What a step adds, with the first token where it is the first; None for an answer without steps."""
        header, first = self.trace.header, step is None or step.index == 0
        logprobs = [header.first_logprobs] * first if header.first_logprobs else []
        provenance = [_provenance(None, 0, header.first_piece)] * first
        alternatives = [*header.first_alternatives] * first
        if step is not None:
            logprobs += step.logprobs
            provenance += [_provenance(step, *each) for each in enumerate(_committed_pieces(step))]
            alternatives += step.alternatives
        text, own = header.first_text if step is None else step.text, self._wish.own
        told = {"provenance": provenance} if own.provenance else {}
        told |= {"alternatives": list(map(_alternatives, alternatives))} if own.alternatives else {}
        return Part(text, logprobs, told)

    def _add(self, part: Part) -> list[dict]:
        if not self._wish.body.stream:
            self._parts.append(part)
            return []
        said = part.text or part.logprobs or part.own
        return [self._chunk(part) | (self._told(part.own) if part.own else {})] if said else []

    def _chunk(self, part: Part, reason: str | None = None, role: dict | None = None) -> dict:
        said = (
            {"text": part.text}
            if self._wish.raw
            else {"delta": {} if reason else {**(role or {}), "content": part.text}}
        )
        choice = {"index": 0, **said, "logprobs": self._logprobs(part.logprobs), "finish_reason": reason}
        return self._head | {"choices": [choice]}

    def _logprobs(self, tokens: Sequence[tuple[Scored, ...]]) -> dict | None:
        if not tokens:
            return None
        if not self._wish.raw:
            return {"content": [_token(each[0]) | {"top_logprobs": list(map(_token, each[1:]))} for each in tokens]}
        return {
            "tokens": [token_name(ranked[0]) for ranked in tokens],
            "token_logprobs": [_bounded(ranked[0].logprob) for ranked in tokens],
            "top_logprobs": [
                {token_name(token): _bounded(token.logprob) for token in reversed((*ranked[1:], ranked[0]))}
                for ranked in tokens
            ],
            "text_offset": [self._offsets.next(ranked[0], self.trace.header) for ranked in tokens],
        }

    def _reason(self) -> str:
        return _FINISHED.get(self.trace.end_reason, "length")

    def _told(self, own: Mapping[str, Sequence[dict]]) -> dict:
        """What stands under "jakiro", for clients that have asked."""
        if self._wish.body.jakiro is None:
            return {}
        header = self.trace.header
        return {EXTENSION: {"method": header.method, "seed": self._wish.sampling.seed} | dict(own)}

    def _numbers(self) -> dict:
        """Usage in OpenAI's form, and drafting in vLLM's where there was any."""
        header, steps = self.trace.header, self.trace.steps
        tokens = len(self.trace.token_ids) - len(header.prefix_ids)
        drafted = sum(len(step.nodes) - 1 for step in steps)
        accepted = sum(min(len(step.accepted_path), len(step.committed_ids)) for step in steps)
        usage = {
            "prompt_tokens": header.num_prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": header.num_prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": header.num_reused_tokens},
            "completion_tokens_details": {
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": drafted - accepted,
            },
        }
        return {"usage": usage} | _speculation(steps)


class TextOffsets:
    """Character offsets of tokens in the text of a completion.

    A token that ends inside a UTF-8 character has the offset at which that character will appear, as the next token.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset: int | None = None

    def next(self, token: Scored, header: Header) -> int:
        """Return the offset of the next token and advance past it."""
        if str(token.token_id) in header.special_tokens:
            return self._offset or 0
        if self._offset is None:
            # SentencePiece writes a blank before the first word, which is not part of the text
            dropped = token.piece.startswith(b" ") and header.first_text[:1] not in ("", " ")
            self._offset = -1 if dropped else 0
        start = max(0, self._offset)
        self._offset += len(self._decoder.decode(token.piece))
        return start


def token_name(token: Scored) -> str:
    """Return a token's text; a token with incomplete UTF-8 is named by its bytes, as in OpenAI's completions."""
    try:
        return token.piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.piece)


def _speculation(steps: Sequence[Step]) -> dict:
    """vLLM's figures (vllm-project/vllm#48915) over the steps that drafted; accepted tokens are before any cut."""
    lengths = [len(step.accepted_path) for step in steps if len(step.nodes) > 1]
    if not lengths:
        return {}
    drafted, accepted, counts = sum(len(step.nodes) - 1 for step in steps), sum(lengths), Counter(lengths)
    figures = {
        "mean_acceptance_length": 1 + accepted / len(lengths),
        "draft_acceptance_rate": accepted / drafted,
        "acceptance_histogram": [counts[length] for length in range(max(lengths) + 1)],
        "num_spec_steps": len(lengths),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
    }
    return {"metrics": {"speculative_decoding": figures}}


def _committed_pieces(step: Step) -> list[bytes]:
    """The bytes of the tokens that a step adds to the answer."""
    pieces = [*(step.nodes[index].piece for index in step.accepted_path), step.bonus_piece]
    return pieces[: len(step.committed_ids)]


def _provenance(step: Step | None, place: int, piece: bytes) -> dict:
    """Who proposed the token at a place of a step; None for the first token, which the prompt's pass chose."""
    token = {"token": piece.decode(errors="replace"), "step": None if step is None else step.index}
    if step is None or place >= len(step.accepted_path):
        return token | {"proposer": TARGET, "also_proposed_by": []}
    node = step.nodes[step.accepted_path[place]]
    return token | {"proposer": node.proposer, "also_proposed_by": list(node.also_proposed_by)}


def _alternatives(place: Ranked) -> dict:
    """A token's rank, and the likeliest tokens in its place with their ids, with which an answer may go on instead."""
    chosen, *likeliest = [_token(each) | {"id": each.token_id} for each in place.tokens]
    return chosen | {"rank": place.rank, "alternatives": likeliest}


def _text(token: Scored) -> str:
    return token.piece.decode(errors="replace")


def _token(token: Scored) -> dict:
    return {"token": _text(token), "logprob": _bounded(token.logprob), "bytes": list(token.piece)}


def _bounded(logprob: float) -> float:
    return logprob if logprob > _LEAST_LOGPROB else _LEAST_LOGPROB
