"""Requests of visitors: raw form values, checked and converted to the library's settings."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from app.words import page as words
from jakiro import config
from jakiro.config import Grammar, SamplingParams, TreeConfig, bias_of, is_count, shortened
from jakiro.core.grammar import check
from jakiro.drafters.registry import METHODS, PLAIN, Methods
from jakiro.system import comma_list
from jakiro.text import as_messages, read_arguments

# Methods that race at once, plain decoding among them
MOST_LANES = 4
# Fields of `SamplingParams`
_WHOLE_NUMBERS = {"top_k", "seed", "no_repeat_ngram_size"}
# Characters of JSON
_LONGEST_ARGUMENTS = 1000


@dataclass(frozen=True, slots=True)
class Asking:
    """A checked request: conversation, sampling, trees, methods and numerics.

    Attributes:
        methods: names or aliases of drafting methods.
        numerics: "exact" or "fast"; None for the numerics that the model was loaded with.
        max_prompt_tokens: the server's limit; None for the model's own.
        raw: the only message is a text to continue, without the chat template.
        template_arguments: arguments of the chat template; None for none.
        prediction: the text that the client expects; empty for none.
        echo: report the prompt, with log probabilities if `params.logprobs` is not None.
        generates: False if only the prompt is scored.
        answer_prefix_ids, forced: beginning of the answer and chosen places in it; see `JakiroGenerator.stream`.
    """

    messages: tuple[dict, ...]
    params: SamplingParams
    tree: TreeConfig
    methods: tuple[str, ...]
    numerics: str | None = None
    max_prompt_tokens: int | None = None
    raw: bool = False
    template_arguments: dict | None = None
    answer_prefix_ids: tuple[int, ...] = ()
    forced: tuple[int, ...] | None = None
    prediction: str = ""
    echo: bool = False
    generates: bool = True

    @property
    def num_answers(self) -> int:
        """Number of answers that count against the limits: one per drafting method, or one for plain decoding."""
        return max(1, sum(name not in (PLAIN.name, *PLAIN.aliases) for name in self.methods))


def read_asking(
    *, question, length, tree, candidates, levels, method, alongside, further_lanes, numerics, system_prompt, history,
    template_arguments=None, answer_as=words.FREE_TEXT, answer_form="", logit_bias="", suppress_tokens="",
    answer_prefix=None, methods: Methods = METHODS, **sampled,
) -> Asking:  # fmt: skip
    """Check raw form values and return the request.

    Args:
        answer_as, answer_form: kind and source of a grammar; the texts of a choice are one per line.
        answer_prefix: two lists: token ids of the answer's beginning, and places whose tokens the visitor chose.
        logit_bias, suppress_tokens: comma-separated ID=BIAS pairs and ids, or the values of `SamplingParams`.
        methods: available drafting methods.
        sampled: other fields of `SamplingParams`.

    Raises:
        ValueError: a value is invalid; the message names the first one.
    """
    messages = read_messages(question, system_prompt, history)
    params = read_params(
        length,
        **sampled,
        logit_bias=_listed(logit_bias, lambda text: tuple(map(bias_of, text.split(",")))),
        suppress_tokens=_listed(suppress_tokens, lambda text: tuple(comma_list(words.SUPPRESSED, text, int))),
        grammar=read_grammar(answer_as, answer_form),
        record_alternatives=True,
    )
    tree_config = _read_tree(tree, as_integer(candidates), as_integer(levels))
    names = [PLAIN.name] * bool(alongside) + [read_method(method, methods)]
    requested = further_lanes if isinstance(further_lanes, list) else filter(None, [further_lanes])
    names += [read_method(name, methods) for name in requested]
    lanes = tuple(dict.fromkeys(names))
    if len(lanes) > MOST_LANES:
        raise ValueError(words.TOO_MANY_LANES.format(most=MOST_LANES, value=len(lanes)))
    arguments = read_template_arguments(template_arguments)
    prefix_ids, forced = _read_prefix(answer_prefix)
    return Asking(
        messages, params, tree_config, lanes, _read_numerics(numerics), template_arguments=arguments,
        answer_prefix_ids=prefix_ids, forced=forced,
    )  # fmt: skip


def _read_prefix(answer_prefix) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the token ids and the chosen places; the engine checks their values."""
    lists = answer_prefix or [[], []]
    if not isinstance(lists, list) or len(lists) != 2 or not all(isinstance(part, list) for part in lists):
        raise ValueError(words.ANSWER_PREFIX_NOT_READ.format(value=shortened(answer_prefix)))
    return tuple(lists[0]), tuple(lists[1])


def read_params(length, **sampled) -> SamplingParams:
    """Return the sampling parameters; integers may be sent as floats.

    Raises:
        ValueError: a value is invalid.
    """
    numbers = {name: as_integer(sampled[name]) for name in _WHOLE_NUMBERS & sampled.keys()}
    return SamplingParams(**sampled | numbers, max_new_tokens=as_integer(length))


def _listed(value, read: Callable[[str], object]) -> object:
    """Return the values listed in a text field; other types are returned for the settings to check."""
    if isinstance(value, str):
        return read(value) if value.strip() else ()
    return () if value is None else value


def read_grammar(kind, source) -> Grammar | None:
    """Return the grammar of the answer; None for free text.

    Raises:
        ValueError: the kind is unknown or the source is invalid.
    """
    kinds = [value for _, value in words.ANSWER_FORMS]
    if kind not in kinds:
        raise ValueError(words.ANSWER_FORM_UNKNOWN.format(known=", ".join(kinds), value=shortened(kind)))
    if kind == words.FREE_TEXT:
        return None
    text = source or ""
    if kind == "choice" and isinstance(text, str):
        text = [line.strip() for line in text.splitlines() if line.strip()]
    grammar = Grammar(kind, "" if kind == "json" else text)
    check(grammar)
    return grammar


def read_template_arguments(value) -> dict | None:
    """Return the arguments of a chat template, from a mapping or its JSON; the template checks their names.

    Raises:
        ValueError: the value is not a mapping, or it is too large.
    """
    arguments = read_arguments(value) if isinstance(value, str | None) else value
    if not isinstance(arguments, dict | None) or len(json.dumps(arguments)) > _LONGEST_ARGUMENTS:
        raise ValueError(words.TEMPLATE_ARGUMENTS_NOT_READ.format(most=_LONGEST_ARGUMENTS, value=shortened(value)))
    return arguments or None


def read_method(name, methods: Methods = METHODS) -> str:
    """Return a method's name for its name or alias.

    Raises:
        ValueError: no method has this name or alias.
    """
    try:
        return methods.named(name if isinstance(name, str) else "").name
    except ValueError:
        raise ValueError(words.UNKNOWN_METHOD.format(known=", ".join(methods), value=shortened(name))) from None


def _read_numerics(numerics) -> str:
    # Links of release 0.10 have the labels
    value = numerics.lower() if isinstance(numerics, str) else numerics
    if value not in (words.EXACT, words.FAST):
        raise ValueError(words.NUMERICS_UNKNOWN.format(value=shortened(numerics)))
    return value


def read_messages(question, system_prompt, history) -> tuple[dict, ...]:
    """Return the conversation: system prompt, earlier turns, question.

    Raises:
        ValueError: a value is not a text or not a message, or the question is empty.
    """
    if isinstance(question, str | None) and not (question or "").strip():
        raise ValueError(words.EMPTY_QUESTION)
    if not isinstance(history or [], list):
        raise ValueError(words.HISTORY_NOT_MESSAGES)
    system = system_prompt.strip() if isinstance(system_prompt, str) else system_prompt
    before = [{"role": "system", "content": system}] if system else []
    return tuple(as_messages([*before, *(history or []), {"role": "user", "content": question}]))


def chat_counts(messages: tuple[dict, ...]) -> str:
    """Return the addition to the error for a prompt that is too long, if it has earlier turns."""
    return words.CHAT_COUNTS if any(message["role"] == "assistant" for message in messages) else ""


def _read_tree(tree, candidates, levels) -> TreeConfig:
    """Return the tree settings; candidates and levels are used only for a fixed tree."""
    if isinstance(tree, str) and tree.lower() == words.AUTOMATIC:
        return config.AUTOMATIC_TREE
    for value, most, sentence in (
        (candidates, config.MOST_NODES - 1, words.CANDIDATES_RANGE),
        (levels, config.MOST_DEPTH, words.LEVELS_RANGE),
    ):
        if not is_count(value, 1) or value > most:
            raise ValueError(sentence.format(most=most, value=shortened(value)))
    return TreeConfig(nodes=candidates + 1, depth=levels, policy="fixed")


def as_integer(value):
    """Convert a float with an integer value to int; other values are returned for the settings to reject."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
