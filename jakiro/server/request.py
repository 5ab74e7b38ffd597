"""OpenAI requests, read into the library's settings.

A field that changes the answer and is not supported is refused by name. Values that change nothing are accepted,
because clients send them by default.
"""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jakiro.config import Grammar, SamplingParams, is_count, shortened
from jakiro.server.errors import Refusal
from jakiro.server.hints import unbounded_parts
from jakiro.text import as_messages, join_text_parts

# Sampling settings, which `SamplingParams` checks; by the names of requests
_OTHER_FIELDS = {"max_new_tokens", "logprobs", "grammar", "record_alternatives"}
SAMPLED = {field.name for field in fields(SamplingParams)} - _OTHER_FIELDS
ALIASES = {"min_tokens": "min_new_tokens"}
# OpenAI's defaults, if they differ from the library's
DEFAULTS = {"temperature": 1.0}
# Answers of one HTTP request, over all its prompts
MAX_CHOICES, MAX_N = 16, 4
# A random seed has few enough digits for the integers of every language
_MAX_RANDOM_SEED = 2**31
# Fields of OpenAI's and vLLM's APIs that are accepted with these values only, which change nothing here
NEUTRAL: dict[str, tuple] = {
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("use_beam_search", "early_stopping", "include_stop_str_in_output", "store"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "detokenize"), (True,)),
    "parallel_tool_calls": (False, True),
    "service_tier": ("auto", "default"),
    "modalities": (["text"],),
    "length_penalty": (1, 1.0),
    "suffix": ("",),
}
_NOT_SUPPORTED = "“{name}” is not supported by this server; leave it out."


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Strict):
    """Additional content of a stream."""

    include_usage: bool = False
    include_obfuscation: bool = False
    continuous_usage_stats: Literal[False] = False


class GrammarExtension(_Strict):
    """A grammar of a kind that OpenAI has no field for."""

    kind: str
    source: str | list = ""


class JakiroExtension(_Strict):
    """The field `jakiro`: settings that are not part of OpenAI's API.

    Attributes:
        method: drafting method.
        provenance: report which drafter proposed each token.
        alternatives: report the most likely tokens in each token's place.
        answer_prefix_ids: given token ids at the start of the answer.
        grammar: grammar of the answer.
    """

    method: str | None = None
    provenance: bool = False
    alternatives: bool = False
    answer_prefix_ids: list[Annotated[int, Field(ge=0)]] = []
    grammar: GrammarExtension | None = None


class Schema(_Strict):
    """A JSON schema with OpenAI's metadata."""

    json_schema: dict = Field(alias="schema")
    name: Any = None
    description: Any = None
    strict: Any = None


class ResponseFormat(_Strict):
    """Form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None

    @property
    def grammar(self) -> Grammar | None:
        """The grammar; None for free text."""
        if self.type == "json_schema":
            if self.json_schema is None:
                raise ValueError("response_format of type json_schema needs json_schema with a schema.")
            return Grammar("json_schema", self.json_schema.json_schema)
        return Grammar("json_schema", {"type": "object"}) if self.type == "json_object" else None


class Prediction(_Strict):
    """Predicted output: the text that the client expects."""

    type: Literal["content"]
    content: str | list


class _Body(_Strict):
    """Fields of both kinds of requests, without the sampling settings in `SAMPLED`.

    Attributes:
        return_token_ids: vLLM's field: the answer's token ids are returned in `token_ids` of each choice.
    """

    model: str
    max_tokens: int | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[int, Field(ge=1, le=MAX_N)] = 1
    return_token_ids: bool = False
    prompt_cache_key: str = ""
    response_format: ResponseFormat = ResponseFormat(type="text")
    prediction: Prediction | None = None
    jakiro: JakiroExtension | None = None
    # Ignored: they describe the client
    user: Any = None
    metadata: Any = None
    safety_identifier: Any = None


class ChatBody(_Body):
    """Body of `/chat/completions`."""

    messages: list
    max_completion_tokens: int | None = None
    chat_template_kwargs: dict | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    echo: ClassVar[bool] = False


class TextBody(_Body):
    """Body of `/completions`.

    Attributes:
        prompt: a text, a list of token ids, or a list of several texts or lists of token ids.
        logprobs: number of most probable tokens to report for each token, 0 for the token alone; None reports nothing.
        echo: return the prompt before the answer.
        best_of: 1, or equal to `n`.
        chat_template_kwargs: not a field of the body; None, because no chat template is applied.
    """

    prompt: str | list
    logprobs: int | None = None
    echo: bool = False
    best_of: int = 1
    chat_template_kwargs: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One answer of a request; a request with several prompts or with `n` above 1 has several.

    Attributes:
        body: the request's fields, without the sampling settings.
        index: number of the answer among the request's choices.
        prompt: messages of a chat; of a completion a text, or token ids.
        sampling: how tokens are chosen; choice k of a prompt has the seed `seed + k`.
        generates: False if only the prompt is scored, which is `max_tokens: 0`.
        prediction: the expected text.
        hints: messages for the client, such as parts of a schema without a limit.
        method: name of the requested drafting method; None for the usual one.
    """

    body: ChatBody | TextBody
    index: int
    prompt: tuple[dict, ...] | str | tuple[int, ...]
    sampling: SamplingParams
    generates: bool = True
    prediction: str = ""
    hints: tuple[str, ...] = ()
    method: str | None = None

    @property
    def raw(self) -> bool:
        """True if the prompt is continued without the chat template."""
        return isinstance(self.body, TextBody)

    @property
    def extension(self) -> JakiroExtension:
        """The field `jakiro`, or its defaults."""
        return self.body.jakiro or JakiroExtension()


def read_chat(values: dict, default_tokens: int) -> tuple[CompletionRequest, ...]:
    """Read a request to `/chat/completions`.

    Args:
        values: the body.
        default_tokens: limit of an answer if the request has none.

    Raises:
        Refusal: one sentence about the first invalid value, with the name of its field.
    """
    sampled, body = _read(ChatBody, values)
    if body.top_logprobs and not body.logprobs:
        raise Refusal(400, "top_logprobs needs logprobs: true.", "top_logprobs")
    messages = [_message(number, message) for number, message in enumerate(body.messages)]
    checked = _named("messages", lambda: tuple(as_messages(messages)))
    limits = {"max_completion_tokens": body.max_completion_tokens, "max_tokens": body.max_tokens}
    logprobs = ("top_logprobs", body.top_logprobs or 0) if body.logprobs else ("logprobs", None)
    return tuple(_requests(body, [checked], sampled, limits, default_tokens, logprobs))


def read_text(values: dict, default_tokens: int) -> tuple[CompletionRequest, ...]:
    """Read a request to `/completions`; see `read_chat` for arguments and errors."""
    sampled, body = _read(TextBody, values)
    if body.best_of not in (1, body.n):
        raise Refusal(400, f"best_of must be 1, or equal n; got {body.best_of}.", "best_of")
    prompts = _prompts(body.prompt)
    if len(prompts) * body.n > MAX_CHOICES:
        message = f"A request has at most {MAX_CHOICES} answers; got {len(prompts)} prompts × n = {body.n}."
        raise Refusal(400, message, "prompt")
    limits = {"max_tokens": body.max_tokens}
    return tuple(_requests(body, prompts, sampled, limits, default_tokens, ("logprobs", body.logprobs)))


def _read(kind: type[_Body], values: dict) -> tuple[dict, Any]:
    """Return the sampling settings, unchecked, and the checked body; null and empty values count as missing."""
    present = {name: value for name, value in values.items() if value is not None and value not in ([], {})}
    for name in NEUTRAL.keys() & present.keys():
        value = present.pop(name)
        if not any(value == neutral and type(value) is type(neutral) for neutral in NEUTRAL[name]):
            raise Refusal(400, _NOT_SUPPORTED.format(name=name), name, "unsupported_parameter")
    sampled = {name: present.pop(name) for name in (SAMPLED | ALIASES.keys()) & present.keys()}
    try:
        return sampled, kind.model_validate(present)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        raise Refusal(400, _NOT_SUPPORTED.format(name=name), name, "unsupported_parameter")
    if first["type"] == "missing":
        raise Refusal(400, f"“{name}” is missing or empty; every request needs it.", name)
    raise Refusal(400, f"{name} {first['msg'].removeprefix('Input ')}; got {shortened(first['input'])}.", name)


def _prompts(prompt: str | list) -> list[str | tuple[int, ...]]:
    """Return the prompts of a completion: texts, or token ids."""
    several = isinstance(prompt, list) and not all(is_count(item, 0) for item in prompt)
    prompts = prompt if several else [prompt]
    for item in prompts:
        if not isinstance(item, str) and not (isinstance(item, list) and item and all(is_count(i, 0) for i in item)):
            message = f"prompt must be a text, a list of token ids, or a list of these; got {shortened(item)}."
            raise Refusal(400, message, "prompt")
    return [item if isinstance(item, str) else tuple(item) for item in prompts]


def _message(number: int, message: object) -> object:
    """Return a message without the fields that change nothing; `as_messages` checks role and content."""
    if not isinstance(message, dict):
        return message
    supported = ("role", "content", "name", "reasoning_content")
    unsupported = next((name for name, value in message.items() if value and name not in supported), None)
    if unsupported is not None:
        name = f"messages[{number}].{unsupported}"
        raise Refusal(400, _NOT_SUPPORTED.format(name=name), name, "unsupported_parameter")
    role, content = message.get("role"), message.get("content")
    if content is None and message.get("reasoning_content"):
        content = ""
    return {"role": "system" if role == "developer" else role, "content": content}


def _named(name: str, check):
    """Call a function; an error of the library becomes a refusal of this field."""
    try:
        return check()
    except ValueError as error:
        raise Refusal(400, str(error), name) from error


def _sampling(sampled: dict) -> dict:
    """Return sampling settings by the library's names; the first invalid one is refused by its name."""
    settings = DEFAULTS | {"seed": secrets.randbelow(_MAX_RANDOM_SEED)}
    for name, value in _without_neutral(sampled).items():
        if name == "logit_bias":
            value = _biases(value)
        own_name = ALIASES.get(name, name)
        settings |= _named(name, lambda checked={own_name: value}: _checked(**checked))
    return settings


def _without_neutral(sampled: Mapping[str, object]) -> dict:
    """Translate values that other servers define: top_k −1 keeps all, top_p 0 is greedy, a negative seed is random."""
    settings = dict(sampled)
    if isinstance(settings.get("stop"), str):
        settings["stop"] = (settings["stop"],)
    if is_count(settings.get("top_k"), -1) and settings["top_k"] == -1:
        del settings["top_k"]
    top_p = settings.get("top_p")
    if isinstance(top_p, int | float) and not isinstance(top_p, bool) and top_p == 0:
        settings |= {"temperature": 0, "top_p": 1}
    seed = settings.get("seed")
    if isinstance(seed, int) and not isinstance(seed, bool) and seed < 0:
        del settings["seed"]
    return settings


def _biases(biases: object) -> object:
    """Return biases with token ids as numbers; names of JSON objects are texts."""
    if not isinstance(biases, dict):
        return biases
    numbers = {int(name) if name.isdecimal() else name: bias for name, bias in biases.items()}
    if len(numbers) < len(biases):
        raise Refusal(400, f"logit_bias names a token twice; got {shortened(biases)}.", "logit_bias")
    return numbers


def _requests(
    body: _Body, prompts: list, sampled: dict, limits: dict, default_tokens: int, logprobs: tuple[str, int | None]
) -> Iterator[CompletionRequest]:
    """Yield the answers of a request: `n` for each prompt.

    Args:
        body: the checked body.
        prompts: see `CompletionRequest.prompt`.
        sampled: sampling settings of the request, unchecked.
        limits: fields that limit the answer; the first one that is not None counts.
        default_tokens: limit if there is none.
        logprobs: name of the field that requests log probabilities, and their number.
    """
    if body.return_token_ids and body.stream:
        raise Refusal(400, "return_token_ids needs stream: false.", "return_token_ids")
    settings = _sampling(sampled)
    name, limit = next(((name, value) for name, value in limits.items() if value is not None), ("", default_tokens))
    generates = not (body.echo and limit == 0)
    settings |= _named(name, lambda: _checked(max_new_tokens=limit if generates else 1))
    settings |= _named(logprobs[0], lambda: _checked(logprobs=logprobs[1]))
    extension = body.jakiro or JakiroExtension()
    settings |= {"record_alternatives": extension.alternatives, "grammar": _grammar(body, extension)}
    sampling = _named("ignore_eos" if settings["grammar"] else None, lambda: SamplingParams(**settings))
    prediction = ""
    if body.prediction is not None:
        prediction = _named("prediction", lambda: join_text_parts(body.prediction.content)) or ""
    is_schema = sampling.grammar is not None and sampling.grammar.kind == "json_schema"
    hints = unbounded_parts(sampling.grammar.source) if is_schema else ()
    for index in range(len(prompts) * body.n):
        prompt, choice = divmod(index, body.n)
        seeded = _named("seed", lambda choice=choice: replace(sampling, seed=sampling.seed + choice))
        yield CompletionRequest(body, index, prompts[prompt], seeded, generates, prediction, hints)


def _checked(**settings) -> dict:
    """Return the settings; raise ValueError if `SamplingParams` refuses them."""
    SamplingParams(**settings)
    return settings


def _grammar(body: _Body, extension: JakiroExtension) -> Grammar | None:
    """Return the grammar of the answer, from the extension or from `response_format`."""
    if extension.grammar is None:
        return _named("response_format", lambda: body.response_format.grammar)
    return _named("jakiro.grammar", lambda: Grammar(extension.grammar.kind, extension.grammar.source))
