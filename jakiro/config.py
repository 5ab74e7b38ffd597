"""Settings as frozen dataclasses, validated when they are constructed.

`SamplingParams` sets how tokens are chosen, `Grammar` the syntax of a completion, `TreeConfig` the bounds of a draft
tree. The config of a draft head is in `jakiro.heads.config` and uses the same checks. Configs of commands define each
option once, with `setting`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

POLICIES = ("auto", "fixed")
# "exact": plain and tree passes are batch-invariant
NUMERICS = ("exact", "fast")
MOST_NODES, MOST_DEPTH = 256, 16
MAX_SEED = 2**63
# Below it, logits divided by the temperature exceed float32's range
LEAST_TEMPERATURE = 1e-4
MOST_STOPS, LONGEST_STOP = 8, 64
MOST_LOGPROBS = 20
# Number of alternatives recorded for a chosen token
ALTERNATIVES = 5
# Larger values have no additional effect
MOST_BIAS, MOST_PENALTY, MOST_REPETITION = 100, 2, 10
MOST_TOKENS_NAMED, MOST_CHOICES, LONGEST_GRAMMAR = 1024, 256, 100_000


class About:
    """Help texts of settings that several configs have."""

    TARGET = "Target model: a known name, a folder, a GGUF file, or a Hub id; if not given, the default one."
    HEAD = "Draft head: a known name, a folder, or a Hub id."
    TEMPLATE_ARGUMENTS = 'Arguments of the chat template as a JSON object, such as {"enable_thinking": false}.'
    DEVICE = "cpu or cuda; if not given, a GPU where there is one."
    DTYPE = "float32, bfloat16 or float16; if not given, the device's default."
    METHODS_FROM = "Add the drafting methods in METHODS of this Python module; may be repeated."
    CORPORA = "Corpus files (*.jsonl.gz) or folders that hold them."
    MAX_NEW_TOKENS = "At most this many tokens."
    TEMPERATURES = "Comma list of temperatures; 0 is greedy."
    TOP_P = "Nucleus mass, above 0 and at most 1."
    TOP_K = "Keep the k likeliest tokens; 0 keeps all."
    WIDTH = "Children tried per node and nodes expanded per level."
    PROMPTS = "Prompts in Spec-Bench form; our own if not given."
    LIMIT = "At most this many prompts, from all categories in turn."


def setting(
    about: str,
    default=MISSING,
    *names: str,
    argument: bool = False,
    repeated: bool = False,
    read: Callable[[str], object] | None = None,
    words: tuple[str, ...] = (),
    variable: bool = False,
) -> Any:
    """Return a config field with its help text, for readers and for a command's `--help`.

    Args:
        about: help text.
        names: of the option, if they differ from the field's name.
        argument: whether the command takes it as an argument, without an option name.
        repeated: whether the option may be repeated; other tuples take a comma list.
        read: parses one part of a repeated option; None for text.
        words: allowed in a comma list of numbers.
        variable: whether JAKIRO_ and the field's name in capitals is an environment variable for it.
    """
    metadata = {"about": about, "names": names, "argument": argument, "several": argument or repeated}
    return field(default=default, metadata=metadata | {"read": read, "words": words, "variable": variable})


def require(condition: bool, sentence: str) -> None:
    """Raise ValueError with the sentence unless the condition holds."""
    if not condition:
        raise ValueError(sentence)


def is_number(value: object) -> bool:
    """Return whether the value is a finite number; True and False are not."""
    return is_count(value, -math.inf) or (isinstance(value, float) and math.isfinite(value))


def is_count(value: object, least: float) -> bool:
    """Return whether the value is a whole number, `least` or more; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _require_valid(is_valid: bool, expectation: str, value: object) -> None:
    """Raise ValueError with the expectation and the value unless the value is valid."""
    require(is_valid, f"{expectation}; got {shortened(value)}.")


def _quoted(value: object) -> str:
    """Return a value for a message: text in quotes, to distinguish '6' from a number."""
    return "nothing" if value is None else repr(value) if isinstance(value, str) else str(value)


def is_ascending(values: object, least: int) -> bool:
    """Return whether the values are a list or tuple of ascending whole numbers, `least` or more; it may be empty."""
    if not isinstance(values, (list, tuple)) or not all(is_count(value, least) for value in values):
        return False
    return list(values) == sorted(set(values))


def bias_of(text: str) -> tuple[int, float]:
    """Parse a token's bias from the form ID=BIAS."""
    token_id, _, bias = text.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise ValueError(f"Logit bias takes ID=BIAS, such as 42=-5; got {text!r}.") from None


GRAMMARS = ("json_schema", "json", "regex", "choice", "lark")


@dataclass(frozen=True, slots=True)
class Grammar:
    """Syntax of a completion.

    Attributes:
        kind: one of `GRAMMARS`.
        source: a JSON schema as a value or as text, a regular expression, a Lark grammar, or for "choice" the possible
            texts; empty for "json", which allows any JSON.

    Raises:
        ValueError: an unknown kind, or a source of another kind. Its content is checked when a model compiles it.
    """

    kind: str
    source: str | tuple[str, ...] = ""

    if TYPE_CHECKING:

        def __init__(self, kind: str, source: str | Sequence[str] | Mapping[str, Any] | bool = "") -> None: ...

    def __post_init__(self) -> None:
        require(self.kind in GRAMMARS, f"A grammar is one of {', '.join(GRAMMARS)}; got {_quoted(self.kind)}.")
        source = self.source
        if self.kind == "json_schema" and isinstance(source, (dict, bool)):
            source = json.dumps(source)
        if self.kind == "choice":
            require(
                isinstance(source, (list, tuple))
                and 0 < len(source) <= MOST_CHOICES
                and all(isinstance(text, str) and text for text in source),
                f"A choice takes 1 to {MOST_CHOICES} texts; got {shortened(source)}.",
            )
            source = tuple(source)
        else:
            is_valid = isinstance(source, str) and bool(source.strip()) != (self.kind == "json")
            expected = "nothing more" if self.kind == "json" else "its text"
            require(is_valid, f"A grammar of kind {self.kind} takes {expected}; got {shortened(source)}.")
        length = len(source) if isinstance(source, str) else sum(map(len, source))
        require(
            length <= LONGEST_GRAMMAR, f"A grammar has at most {LONGEST_GRAMMAR:,} characters; yours has {length:,}."
        )
        object.__setattr__(self, "source", source)


# Settings that are numbers: name in messages, minimum, maximum, and the range in words
_RANGES = {
    "temperature": ("Temperature", 0, 2, "between 0 and 2"),
    "min_p": ("Min-p", 0, 1, "between 0 and 1"),
    "repetition_penalty": ("Repetition penalty", 1 / MOST_REPETITION, MOST_REPETITION, "0.1 to 10, 1 for none"),
    "presence_penalty": ("Presence penalty", -MOST_PENALTY, MOST_PENALTY, "-2 to 2, 0 for none"),
    "frequency_penalty": ("Frequency penalty", -MOST_PENALTY, MOST_PENALTY, "-2 to 2, 0 for none"),
}
# Settings that are whole numbers: minimum, maximum, and the expectation in words
_COUNTS = {
    "top_k": (0, math.inf, "Top-k must be a whole number, 0 or more"),
    "seed": (0, MAX_SEED - 1, "Seed must be a whole number from 0 to 2^63 - 1"),
    "max_new_tokens": (1, math.inf, "Length must be a whole number of tokens, 1 or more"),
    "min_new_tokens": (0, math.inf, "Minimum length must be a whole number of tokens, 0 for none"),
    "no_repeat_ngram_size": (0, math.inf, "N-gram size must be a whole number of tokens, 0 for none"),
}


def shortened(value: object) -> str:
    """Return a value from outside, shortened for a message."""
    return cut_short(_quoted(value), 80)


def cut_short(text: str, length: int) -> str:
    """Return the first `length` characters of a text, with an ellipsis if there are more."""
    return text if len(text) <= length else f"{text[:length]}…"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Settings of token choice. The same values give the same text with every decoding method.

    They apply in this order: `logit_bias`, the penalties, forbidden tokens (`no_repeat_ngram_size`, `suppress_tokens`,
    `grammar`); then, when sampling, temperature, top-k, top-p and min-p. Order and numbers follow transformers;
    the presence and frequency penalties are OpenAI's.

    Attributes:
        temperature: 0 for greedy decoding, otherwise `LEAST_TEMPERATURE` to 2.
        top_p: above 0 and at most 1; 1 keeps all tokens.
        top_k: 0 or more; 0 keeps all tokens.
        seed: 0 <= seed < 2**63. The noise is a function of seed and absolute position.
        max_new_tokens: 1 or more; includes the stop token.
        stop: at most `MOST_STOPS` texts of 1 to `LONGEST_STOP` characters. The completion ends before the first of
            them, even if it starts inside a token.
        min_p: 0 to 1: drops tokens below this share of the highest probability; 0 keeps all.
        repetition_penalty: 1 / `MOST_REPETITION` to `MOST_REPETITION`: divides the positive logits of tokens in the
            prompt or the completion, and multiplies the negative ones; 1 has no effect.
        presence_penalty, frequency_penalty: −2 to 2, subtracted from the logits of tokens in the completion, once or
            for each occurrence; 0 has no effect.
        min_new_tokens: 0 or more: stop tokens are forbidden until the completion has so many tokens.
        ignore_eos: stop tokens do not end the completion; requires a length limit or a stop text, and no grammar.
        no_repeat_ngram_size: no sequence of this length occurs twice in prompt and completion; 0 allows all.
        logit_bias: −100 to 100 by token id, added to its logit; a mapping or pairs.
        suppress_tokens: ids that are never generated.
        grammar: syntax of the completion; None for free text.
        logprobs: record the log probability of each token and of this number of most likely tokens, at most
            `MOST_LOGPROBS`; None records nothing and costs nothing.
        record_alternatives: record the `ALTERNATIVES` most likely tokens in each token's place, see `jakiro.trace`.

    Raises:
        ValueError: a value is out of its range.
    """

    temperature: float = setting("0 is greedy; otherwise logits are divided by it.", 0.0)
    top_p: float = setting(About.TOP_P, 1.0)
    top_k: int = setting(About.TOP_K, 0)
    seed: int = setting("The same seed gives the same text, with and without drafting.", 0)
    max_new_tokens: int = setting(About.MAX_NEW_TOKENS, 256)
    stop: tuple[str, ...] = setting("End before this text; may be repeated.", (), repeated=True)
    min_p: float = setting("Drop tokens below this share of the highest probability; 0 keeps all.", 0.0)
    repetition_penalty: float = setting("Divide logits of earlier tokens, including the prompt's; 1 for none.", 1.0)
    presence_penalty: float = setting("Subtract from the logits of tokens in the answer.", 0.0)
    frequency_penalty: float = setting("Subtract for each occurrence of a token in the answer.", 0.0)
    min_new_tokens: int = setting("Do not end the answer with an end token before this many tokens.", 0)
    ignore_eos: bool = setting("Continue after end tokens, up to --max-new-tokens.", False, "--ignore-eos")
    no_repeat_ngram_size: int = setting("No sequence of this many tokens occurs twice; 0 allows all.", 0)
    logit_bias: tuple[tuple[int, float], ...] = setting(
        "ID=BIAS, added to a token's logit; may be repeated.", (), repeated=True, read=bias_of
    )
    suppress_tokens: tuple[int, ...] = setting("Comma list of token ids that are never generated.", ())
    grammar: Grammar | None = None
    logprobs: int | None = None
    record_alternatives: bool = setting(
        "Record in --trace the five likeliest tokens in each token's place.", False, "--record-alternatives"
    )

    if TYPE_CHECKING:
        # Editors show these types: fields have those after the conversions of `__post_init__`
        def __init__(
            self,
            temperature: float = 0.0,
            top_p: float = 1.0,
            top_k: int = 0,
            seed: int = 0,
            max_new_tokens: int = 256,
            stop: Sequence[str] = (),
            min_p: float = 0.0,
            repetition_penalty: float = 1.0,
            presence_penalty: float = 0.0,
            frequency_penalty: float = 0.0,
            min_new_tokens: int = 0,
            ignore_eos: bool = False,
            no_repeat_ngram_size: int = 0,
            logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] = (),
            suppress_tokens: Sequence[int] = (),
            grammar: Grammar | None = None,
            logprobs: int | None = None,
            record_alternatives: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, (label, least, most, in_words) in _RANGES.items():
            value = getattr(self, name)
            _require_valid(is_number(value) and least <= value <= most, f"{label} must be {in_words}", value)
        for name, (least, most, expectation) in _COUNTS.items():
            value = getattr(self, name)
            _require_valid(is_count(value, least) and value <= most, expectation, value)
        at_least = f"Temperature must be 0, which is greedy, or at least {LEAST_TEMPERATURE:g}"
        _require_valid(self.greedy or self.temperature >= LEAST_TEMPERATURE, at_least, self.temperature)
        _require_valid(is_number(self.top_p) and 0 < self.top_p <= 1, "Top-p must be above 0 and at most 1", self.top_p)
        _require_valid(
            isinstance(self.stop, (list, tuple))
            and len(self.stop) <= MOST_STOPS
            and all(isinstance(text, str) and 0 < len(text) <= LONGEST_STOP for text in self.stop),
            f"Stop must be at most {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters",
            self.stop,
        )
        _require_valid(
            self.logprobs is None or (is_count(self.logprobs, 0) and self.logprobs <= MOST_LOGPROBS),
            f"Logprobs must be a whole number from 0 to {MOST_LOGPROBS}",
            self.logprobs,
        )
        require(
            isinstance(self.ignore_eos, bool), f"ignore_eos must be true or false; got {shortened(self.ignore_eos)}."
        )
        require(
            not self.ignore_eos or self.grammar is None,
            "ignore_eos cannot be combined with a grammar, which ends with an end token; leave one of them out.",
        )
        is_flag = isinstance(self.record_alternatives, bool)
        _require_valid(is_flag, "Record alternatives must be true or false", self.record_alternatives)
        _require_valid(
            isinstance(self.suppress_tokens, (list, tuple))
            and len(self.suppress_tokens) <= MOST_TOKENS_NAMED
            and all(is_count(token_id, 0) for token_id in self.suppress_tokens),
            f"Suppressed tokens must be at most {MOST_TOKENS_NAMED} ids, 0 or more",
            self.suppress_tokens,
        )
        _require_valid(isinstance(self.grammar, Grammar | None), "A grammar must be a Grammar or None", self.grammar)
        object.__setattr__(self, "stop", tuple(self.stop))
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        object.__setattr__(self, "suppress_tokens", tuple(sorted(set(self.suppress_tokens))))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def unfiltered(self) -> bool:
        """True if tokens are sampled from the whole vocabulary, without top-k, top-p and min-p."""
        return not self.greedy and self.top_k == 0 and self.top_p == 1 and self.min_p == 0

    @property
    def log_min_p(self) -> float | None:
        """Log of min-p: distance from the largest logit at which tokens are dropped; None if min-p is 0."""
        return math.log(self.min_p) if self.min_p > 0 else None

    def with_makers(self, settings: Mapping) -> "SamplingParams":
        """Return the settings with recommended values of a target in place of default values."""
        default = SamplingParams()
        unset = {name: value for name, value in settings.items() if getattr(self, name) == getattr(default, name)}
        return replace(self, **unset)

    def to_dict(self) -> dict:
        """Return the settings by name, in JSON's types."""
        lists = {name: list(map(_listed, getattr(self, name))) for name in ("stop", "logit_bias", "suppress_tokens")}
        grammar = self.grammar and {"kind": self.grammar.kind, "source": _listed(self.grammar.source)}
        return asdict(self) | lists | {"grammar": grammar}


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _biases(value: Any) -> tuple[tuple[int, float], ...]:
    """Return biases as pairs, sorted by token id.

    Raises:
        ValueError: the value is neither a mapping nor pairs of biases.
    """
    expectation = (
        f"Logit bias must give at most {MOST_TOKENS_NAMED} token ids a number from -{MOST_BIAS} to {MOST_BIAS} each"
    )
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    is_valid = isinstance(pairs, (list, tuple)) and len(pairs) <= MOST_TOKENS_NAMED and all(map(_is_bias, pairs))
    _require_valid(is_valid and len(dict(pairs)) == len(pairs), expectation, value)
    return tuple(sorted((token_id, float(bias)) for token_id, bias in pairs))


def _is_bias(pair: object) -> bool:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return False
    token_id, bias = pair
    return is_count(token_id, 0) and is_number(bias) and abs(bias) <= MOST_BIAS


class TreeSize(NamedTuple):
    """The size chosen for one tree.

    Attributes:
        levels: depth of the deepest node; 0 for the root only.
        nodes: number of nodes, including the root.
    """

    levels: int
    nodes: int


NO_DRAFT = TreeSize(0, 1)


@dataclass(frozen=True, slots=True)
class TreeConfig:
    """Bounds of draft trees, which grow as in EAGLE-2 (arXiv 2406.16858).

    The contrastive last level is Jakiro's (arXiv 2502.06282).

    Attributes:
        width: 1 to 64: children tried per node, and nodes expanded per level.
        depth: 0 to `MOST_DEPTH`, of the deepest node; 0 for the root only.
        nodes: 1 to `MOST_NODES`, including the root; 1 for the root only.
        policy: "fixed" grows trees of this depth and size; with "auto" both are upper bounds, and each step chooses a
            size by the measured costs of passes.
        shared_noise: at temperature > 0, rank draft tokens with the noise of the target's choice. It does not change
            the text.
        contrastive: draft the last two levels in one pass, if the head has a contrastive branch.

    Raises:
        ValueError: a value is out of its range.
    """

    width: int = 8
    depth: int = 5
    nodes: int = 24
    policy: str = "fixed"
    shared_noise: bool = True
    contrastive: bool = True

    def __post_init__(self) -> None:
        for name, least, most in (("width", 1, 64), ("depth", 0, MOST_DEPTH), ("nodes", 1, MOST_NODES)):
            value = getattr(self, name)
            _require_valid(is_count(value, least) and value <= most, f"Tree {name} must be {least} to {most}", value)
        require(self.policy in POLICIES, f"Tree policy must be one of {POLICIES}; got {self.policy!r}.")

    @property
    def root_only(self) -> bool:
        return self.depth == 0 or self.nodes == 1

    def with_size(self, size: TreeSize) -> "TreeConfig":
        """Return the config of trees of exactly this size."""
        return replace(self, depth=size.levels, nodes=size.nodes, policy="fixed")


# Plain decoding's tree, and the default bounds of trees that choose their own size
ROOT_ONLY = TreeConfig(depth=0, nodes=1)
AUTOMATIC_TREE = TreeConfig(policy="auto", nodes=64, depth=8)
# The same for targets whose passes cost nearly the same for any tree
SPREAD_TREE = replace(AUTOMATIC_TREE, nodes=MOST_NODES)
