"""What one visitor and one server may use: settings, each an option and a variable, and their checks."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from app.asking import Asking, chat_counts
from app.words import page as words


def _limit(default: int, least: int, meaning: str):
    return field(default=default, metadata={"least": least, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits; `--max-new-tokens` on the command line is `JAKIRO_MAX_NEW_TOKENS` in the environment, and so on.

    Raises:
        ValueError: a value below the least one that makes sense; the sentence names the option.
    """

    max_prompt_characters: int = _limit(20_000, 1, "characters of question, history and system prompt together")
    max_prompt_tokens: int = _limit(4096, 1, "tokens of the whole prompt, unless the model itself reads fewer")
    max_new_tokens: int = _limit(2048, 1, "tokens of one answer")
    answers_per_minute: int = _limit(20, 1, "answers one visitor may start in a minute")
    answers_per_minute_address: int = _limit(300, 1, "the same, for all visitors of one network address")
    answers_at_once: int = _limit(1, 1, "answers one visitor may have waiting or running")
    queue_length: int = _limit(64, 1, "answers that may wait, all visitors together")
    queue_length_address: int = _limit(48, 1, "the same, for all visitors of one network address")
    benchmarks_address: int = _limit(4, 1, "benchmarks that may run at once from one network address")
    requests_per_minute_address: int = _limit(3000, 60, "requests from one network address in a minute")
    max_request_kilobytes: int = _limit(512, 16, "size of one request")
    kept_megabytes: int = _limit(256, 1, "memory for finished answers, which Save reads; the oldest are dropped first")
    kept_minutes: int = _limit(60, 1, "how long a finished answer is kept")
    prefix_megabytes: int = _limit(
        256, 0, "prompt cache of chats, so that a next turn reads only its new part; 0 stores nothing"
    )
    sessions: int = _limit(200, 1, "open browser tabs that the server remembers")

    def __post_init__(self) -> None:
        for limit in fields(self):
            value, least = getattr(self, limit.name), limit.metadata["least"]
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    words.LIMIT_OUT_OF_RANGE.format(option=_option(limit.name), least=f"{least:,}", came=value)
                )

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """One option a limit; what is left out comes from the environment, then from the defaults here."""
        group = parser.add_argument_group("limits", "each is also an environment variable: JAKIRO_MAX_NEW_TOKENS, …")
        for limit in fields(cls):
            meaning = f"{limit.metadata['meaning']} ({limit.default:,})"
            group.add_argument(_option(limit.name), type=int, metavar="N", help=meaning)

    @classmethod
    def read(cls, arguments: argparse.Namespace | None = None, variables: Mapping[str, str] = os.environ) -> "Limits":
        """Options first, then variables, then defaults.

        Raises:
            ValueError: a variable that is no whole number, or a value that is too small.
        """
        values = {}
        for limit in fields(cls):
            given = getattr(arguments, limit.name, None)
            variable = f"JAKIRO_{limit.name.upper()}"
            if given is None and variables.get(variable):
                given = _whole_number(variable, variables[variable])
            if given is not None:
                values[limit.name] = given
        return cls(**values)

    def check(self, asking: Asking) -> Asking:
        """Refuses what is too long before it takes a place in the queue; returns the asking with its token limit.

        Raises:
            ValueError: one sentence with what came and what is possible.
        """
        characters = sum(len(message["content"]) for message in asking.messages)
        if characters > self.max_prompt_characters:
            excess = characters - self.max_prompt_characters
            sentence = words.PROMPT_TOO_LONG.format(came=characters, limit=self.max_prompt_characters, excess=excess)
            raise ValueError(sentence + chat_counts(asking.messages))
        if any("\ud800" <= letter <= "\udfff" for message in asking.messages for letter in message["content"]):
            raise ValueError(words.HALF_A_CHARACTER)
        if asking.params.max_new_tokens > self.max_new_tokens:
            raise ValueError(words.LENGTH_TOO_LONG.format(limit=self.max_new_tokens))
        return replace(asking, max_prompt_tokens=self.max_prompt_tokens)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _whole_number(variable: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(words.VARIABLE_NOT_A_NUMBER.format(variable=variable, came=text[:40])) from None
