"""OpenAI's requests as settings of the library. What is not supported is refused by name, never ignored."""

import secrets
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jakiro.config import Grammar, SamplingParams, shortened
from jakiro.server.errors import Refusal
from jakiro.text import as_messages

# Fields that the library's settings check themselves, in their own words
SAMPLED = {field.name for field in fields(SamplingParams)} - {
    "max_new_tokens",
    "logprobs",
    "grammar",
    "record_alternatives",
}
# OpenAI's defaults, where the library has others
DEFAULTS = {"temperature": 1.0}
# Where no seed is given; few enough digits for every language's integers
_SEEDS = 2**31
_NOT_SUPPORTED = "“{name}” is not supported by this server; leave it out."


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Strict):
    include_usage: bool = False
    include_obfuscation: bool = False


class OwnGrammar(_Strict):
    kind: str
    source: str | list = ""


class Own(_Strict):
    """What OpenAI has no name for.

    The drafting method, who proposed each token, what else could have come, the beginning of an answer that goes on,
    and further kinds of grammars.
    """

    method: str | None = None
    provenance: bool = False
    alternatives: bool = False
    answer_prefix_ids: list = []
    grammar: OwnGrammar | None = None


class Schema(_Strict):
    json_schema: dict = Field(alias="schema")
    name: Any = None
    description: Any = None
    strict: Any = None


class ResponseFormat(_Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None

    @property
    def grammar(self) -> Grammar | None:
        if self.type == "json_schema":
            if self.json_schema is None:
                raise ValueError("response_format of type json_schema needs json_schema with a schema.")
            return Grammar("json_schema", self.json_schema.json_schema)
        return Grammar("json_schema", {"type": "object"}) if self.type == "json_object" else None


class _Body(_Strict):
    """What both kinds of requests have; how tokens are chosen is no part of it, see `SAMPLED`."""

    model: str
    max_tokens: int | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Literal[1] = 1
    prompt_cache_key: str = ""
    response_format: ResponseFormat = ResponseFormat(type="text")
    jakiro: Own | None = None
    # Of no meaning for one answer here
    user: Any = None
    metadata: Any = None
    safety_identifier: Any = None
    store: Literal[False] = False


class ChatBody(_Body):
    messages: list
    max_completion_tokens: int | None = None
    chat_template_kwargs: dict | None = None
    logprobs: bool = False
    top_logprobs: int | None = None


class TextBody(_Body):
    prompt: str
    logprobs: int | None = None
    echo: Literal[False] = False
    best_of: Literal[1] = 1
    chat_template_kwargs: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Wish:
    """One checked request.

    Attributes:
        body: its fields, but for those that choose tokens, which `sampling` has.
        messages: the conversation; of a text to continue, which has `raw`, the text as a user's one message.
        own: what was asked for under the name "jakiro", or nothing of it.
    """

    body: ChatBody | TextBody
    messages: tuple[dict, ...]
    sampling: SamplingParams
    own: Own

    @property
    def raw(self) -> bool:
        return isinstance(self.body, TextBody)


def read_chat(values: dict, most_tokens: int) -> Wish:
    """A request to `/chat/completions`.

    Args:
        most_tokens: of an answer where the request names no number.

    Raises:
        Refusal: one sentence about the first value that does not fit.
    """
    sampled, body = _read(ChatBody, values)
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal(400, "top_logprobs needs logprobs: true.", "top_logprobs")
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    return _wish(
        body,
        messages=[_message(number, message) for number, message in enumerate(body.messages)],
        sampled=sampled,
        limit=most_tokens if limit is None else limit,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def read_text(values: dict, most_tokens: int) -> Wish:
    """A request to `/completions`; arguments and errors are those of `read_chat`."""
    prompt = values.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        values = values | {"prompt": prompt[0]}
    sampled, body = _read(TextBody, values)
    return _wish(
        body,
        messages=[{"role": "user", "content": body.prompt}],
        sampled=sampled,
        limit=most_tokens if body.max_tokens is None else body.max_tokens,
        logprobs=body.logprobs,
    )


def _read(kind: type[_Body], values: dict) -> tuple[dict, Any]:
    """What chooses tokens, and the rest checked; what is null or empty was not given."""
    given = {name: value for name, value in values.items() if value is not None and value not in ([], {})}
    sampled = {name: given.pop(name) for name in SAMPLED & given.keys()}
    try:
        return sampled, kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        raise Refusal(400, _NOT_SUPPORTED.format(name=name), name, "unsupported_parameter")
    if first["type"] == "missing":
        raise Refusal(400, f"“{name}” is missing or empty; every request needs it.", name)
    raise Refusal(400, f"{name} {first['msg'].removeprefix('Input ')}; you gave {shortened(first['input'])}.", name)


def _message(number: int, given: object) -> object:
    """A message as the library reads it; its sentence about what is none comes later."""
    if not isinstance(given, dict):
        return given
    further = next((name for name, value in given.items() if value and name not in ("role", "content")), None)
    if further is not None:
        name = f"messages[{number}].{further}"
        raise Refusal(400, _NOT_SUPPORTED.format(name=name), name, "unsupported_parameter")
    return {**given, "role": "system" if given.get("role") == "developer" else given.get("role")}


def _wish(body: _Body, messages: list, sampled: dict, limit: int, logprobs: int | None) -> Wish:
    if isinstance(sampled.get("stop"), str):
        sampled["stop"] = (sampled["stop"],)
    chosen = {"seed": secrets.randbelow(_SEEDS)} | DEFAULTS | sampled
    try:
        if isinstance(chosen.get("logit_bias"), dict):
            # The names of JSON's objects are texts
            chosen["logit_bias"] = {
                int(name) if name.isdecimal() else name: bias for name, bias in chosen["logit_bias"].items()
            }
        own = body.jakiro or Own()
        form = own.grammar
        grammar = Grammar(form.kind, form.source) if form else body.response_format.grammar
        recorded = {"logprobs": logprobs, "record_alternatives": own.alternatives}
        sampling = SamplingParams(**chosen, max_new_tokens=limit, grammar=grammar, **recorded)
        checked = as_messages(messages)
    except ValueError as error:
        raise Refusal(400, str(error)) from error
    return Wish(body, tuple(checked), sampling, own)
