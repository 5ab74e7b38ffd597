"""Responses in OpenAI's format: one object, or the chunks of a stream."""

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jakiro import __version__
from jakiro.decode.prompt_logprobs import PromptScores
from jakiro.drafters.prediction import PROPOSER as PREDICTION
from jakiro.server.logprobs import TextOffsets, alternatives_dict, chat_logprobs, text_logprobs
from jakiro.server.request import CompletionRequest
from jakiro.trace import Node, Scored, Step, Trace

# End reasons in OpenAI's terms; all others are limits
_FINISH_REASONS = {"eos": "stop", "stop": "stop", "no_token": "stop"}
TARGET = "target"

# Name of the field with everything that OpenAI's format has no field for
EXTENSION = "jakiro"


class Part(NamedTuple):
    """Text and lists added to an answer by one event.

    Attributes:
        text: completed text.
        logprobs: per token, if requested: the token, then the most likely ones in its place.
        extension: requested lists of the field `jakiro`, one entry per token.
    """

    text: str
    logprobs: Sequence[tuple[Scored, ...]] = ()
    extension: Mapping[str, Sequence[dict]] = {}


class Choice:
    """One answer of a response.

    Attributes:
        request: the request.
        trace: header and steps so far; None before the header, and if only the prompt is scored.
        prompt: the scored prompt, if `echo` was requested.
        parts: parts of the answer so far, if it is not streamed.
        end_reason: see `Trace.end_reason`; None while it grows.
    """

    def __init__(self, request: CompletionRequest) -> None:
        self.request = request
        self.trace: Trace | None = None
        self.prompt: PromptScores | None = None
        self.parts: list[Part] = []
        self.end_reason: str | None = None
        self._offsets: TextOffsets | None = None

    def take(self, event: tuple[str, object, object]) -> list[Part]:
        """Return the parts that an event adds."""
        kind, _, payload = event
        parts = []
        if kind == "prompt":
            self.prompt = payload
            self._offsets = TextOffsets(payload.special_tokens, payload.text)
            parts = [Part(payload.text, payload.logprobs)]
        elif kind == "header":
            self.trace = Trace(payload)
            self._offsets = self._offsets or TextOffsets(payload.special_tokens, payload.first_text)
        elif kind == "step":
            self.trace.steps.append(payload)
            parts = [self._part(payload)]
        else:
            self.end_reason = payload
            if self.trace is not None:
                self.trace.end_reason = payload
                parts = [] if self.trace.steps else [self._part(None)]
        if not self.request.body.stream:
            self.parts += parts
        return parts

    @property
    def finish_reason(self) -> str:
        return _FINISH_REASONS.get(self.end_reason, "length")

    def to_dict(self) -> dict:
        """Return the finished choice."""
        text = "".join(part.text for part in self.parts)
        logprobs = [token for part in self.parts for token in part.logprobs]
        choice = {"index": self.request.index, "finish_reason": self.finish_reason}
        if self.request.body.return_token_ids:
            choice["token_ids"] = (
                [] if self.trace is None else self.trace.token_ids[len(self.trace.header.prefix_ids) :]
            )
        if self.request.raw:
            return choice | {"text": text, "logprobs": text_logprobs(logprobs, self._offsets)}
        message = {"role": "assistant", "content": text, "refusal": None}
        return choice | {"message": message, "logprobs": chat_logprobs(logprobs)}

    def delta(self, part: Part, reason: str | None = None, role: dict | None = None) -> dict:
        """Return the choice of a chunk."""
        choice = {"index": self.request.index, "finish_reason": reason}
        if self.request.raw:
            return choice | {"text": part.text, "logprobs": text_logprobs(part.logprobs, self._offsets)}
        delta = {} if reason else {**(role or {}), "content": part.text}
        return choice | {"delta": delta, "logprobs": chat_logprobs(part.logprobs)}

    def extension(self, lists: Mapping[str, Sequence[dict]]) -> dict:
        """Return the field `jakiro`: requested values and hints; empty if there are none."""
        fields = {}
        if self.request.body.jakiro is not None:
            if self.trace is not None:
                fields["method"] = self.trace.header.method
            fields |= {"seed": self.request.sampling.seed} | dict(lists)
        if self.hints:
            fields["hints"] = self.hints
        return {EXTENSION: fields} if fields else {}

    def whole_extension(self) -> dict:
        """Return the field `jakiro` of a finished answer."""
        names = dict.fromkeys(name for part in self.parts for name in part.extension)
        return self.extension(
            {name: [entry for part in self.parts for entry in part.extension.get(name, ())] for name in names}
        )

    @property
    def hints(self) -> list[str]:
        """Messages for the client."""
        hints, method = list(self.request.hints), self.request.method
        if self.trace is not None and method not in (None, self.trace.header.method):
            hints.append(f"{method} cannot run with the loaded pair; {self.trace.header.method} answered.")
        return hints

    def _part(self, step: Step | None) -> Part:
        """Return the part of a step, with the first token if it is the first step; None if there are no steps."""
        header, is_first = self.trace.header, step is None or step.index == 0
        logprobs = [header.first_logprobs] if is_first and header.first_logprobs else []
        provenance = [_provenance(None, 0, header.first_piece)] if is_first else []
        alternatives = [*header.first_alternatives] if is_first else []
        if step is not None:
            logprobs += step.logprobs
            provenance += [_provenance(step, place, piece) for place, piece in enumerate(_committed_pieces(step))]
            alternatives += step.alternatives
        extension, lists = self.request.extension, {}
        if extension.provenance:
            lists["provenance"] = provenance
        if extension.alternatives:
            lists["alternatives"] = list(map(alternatives_dict, alternatives))
        return Part(header.first_text if step is None else step.text, logprobs, lists)


class Reply:
    """The response to one HTTP request, with one choice per answer.

    Args:
        requests: the answers in the order in which they are decoded.
        model: name of the model.
    """

    def __init__(self, requests: Sequence[CompletionRequest], model: str) -> None:
        self.choices = [Choice(request) for request in requests]
        self._first = requests[0]
        raw, stream = self._first.raw, self._first.body.stream
        kind = "text_completion" if raw else "chat.completion"
        self._head = {
            "id": f"{'cmpl' if raw else 'chatcmpl'}-{uuid.uuid4().hex}",
            "object": kind if raw or not stream else f"{kind}.chunk",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"jakiro-{__version__}",
        }

    def take(self, index: int, event: tuple[str, object, object]) -> list[dict]:
        """Return the chunks that an event adds to the stream.

        Args:
            index: number of the answer.
            event: see `jakiro.server.event_queue.Event`.
        """
        choice = self.choices[index]
        parts = choice.take(event)
        if not self._first.body.stream:
            return []
        chunks = []
        if event[0] == "header" and not choice.request.raw:
            chunks.append(self._chunk(choice.delta(Part(""), role={"role": "assistant"})))
        for part in parts:
            if part.text or part.logprobs or part.extension:
                extension = choice.extension(part.extension) if part.extension else {}
                chunks.append(self._chunk(choice.delta(part)) | extension)
        if event[0] == "end":
            chunks.append(self._chunk(choice.delta(Part(""), reason=choice.finish_reason)) | choice.extension({}))
            if choice is self.choices[-1] and self._first.body.stream_options.include_usage:
                chunks.append(self._head | {"choices": []} | self._figures())
        return chunks

    def to_dict(self) -> dict:
        """Return the response as one object."""
        has_several = len(self.choices) > 1
        choices = [choice.to_dict() | (choice.whole_extension() if has_several else {}) for choice in self.choices]
        extension = {} if has_several else self.choices[0].whole_extension()
        return self._head | {"choices": choices} | self._figures() | extension

    def _chunk(self, choice: dict) -> dict:
        return self._head | {"choices": [choice]}

    def _figures(self) -> dict:
        """Return usage in OpenAI's format, and vLLM's figures if anything was drafted."""
        prompt_tokens = cached = tokens = accepted = rejected = 0
        for choice in self.choices:
            is_first_of_prompt = choice.request.index % choice.request.body.n == 0
            if choice.trace is None:
                prompt_tokens += len(choice.prompt.token_ids) if choice.prompt and is_first_of_prompt else 0
                continue
            header = choice.trace.header
            prompt_tokens += header.num_prompt_tokens if is_first_of_prompt else 0
            cached += header.num_reused_tokens if is_first_of_prompt else 0
            tokens += len(choice.trace.token_ids) - len(header.prefix_ids)
            drafted, num_accepted = _count_drafted(choice.trace, choice.request.prediction)
            accepted, rejected = accepted + num_accepted, rejected + drafted - num_accepted
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": rejected,
            },
        }
        steps = [step for choice in self.choices if choice.trace is not None for step in choice.trace.steps]
        return {"usage": usage} | _speculation(steps)


def _count_drafted(trace: Trace, prediction: str) -> tuple[int, int]:
    """Return the numbers of drafted tokens and of accepted ones in the answer.

    With a predicted output, only the tokens that it proposed are counted.
    """

    def is_counted(node: Node) -> bool:
        return not prediction or PREDICTION in (node.proposer, *node.also_proposed_by)

    drafted = accepted = 0
    for step in trace.steps:
        drafted += sum(map(is_counted, step.nodes[1:]))
        path = step.accepted_path[: len(step.committed_ids)]
        accepted += sum(is_counted(step.nodes[index]) for index in path)
    return drafted, accepted


def _speculation(steps: Sequence[Step]) -> dict:
    """Return vLLM's figures (vllm-project/vllm#48915) over the steps that drafted, before any cut at the end."""
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
    """Return the bytes of the tokens that a step adds to the answer."""
    pieces = [*(step.nodes[index].piece for index in step.accepted_path), step.bonus_piece]
    return pieces[: len(step.committed_ids)]


def _provenance(step: Step | None, place: int, piece: bytes) -> dict:
    """Return which drafter proposed the token at a place of a step; `step` is None for the token after the prefill."""
    token = {"token": piece.decode(errors="replace"), "step": None if step is None else step.index}
    if step is None or place >= len(step.accepted_path):
        return token | {"proposer": TARGET, "also_proposed_by": []}
    node = step.nodes[step.accepted_path[place]]
    return token | {"proposer": node.proposer, "also_proposed_by": list(node.also_proposed_by)}
