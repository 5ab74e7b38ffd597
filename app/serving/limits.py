"""Limits of one visitor and one server: settings, each an option and a variable, and their checks."""

from dataclasses import dataclass, fields, replace
from functools import partial

from app.asking import Asking, chat_counts
from app.words import page as words
from jakiro.config import is_count, setting

_limit = partial(setting, variable=True)
# Where 1 is not the least that makes sense
_LEAST = {"requests_per_minute_address": 60, "max_request_kilobytes": 16, "prefix_megabytes": 0}


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits; `--max-new-tokens` on the command line is `JAKIRO_MAX_NEW_TOKENS` in the environment, and so on.

    Raises:
        ValueError: a value below the least one that makes sense; the sentence names the option.
    """

    max_prompt_characters: int = _limit("Characters of question, history and system prompt together.", 20_000)
    max_prompt_tokens: int = _limit("Tokens of the whole prompt, unless the model itself reads fewer.", 4096)
    max_new_tokens: int = _limit("Tokens of one answer.", 2048)
    answers_per_minute: int = _limit("Answers one visitor may start in a minute.", 20)
    answers_per_minute_address: int = _limit("The same, for all visitors of one network address.", 300)
    answers_at_once: int = _limit("Answers one visitor may have waiting or running.", 1)
    queue_length: int = _limit("Answers that may wait, all visitors together.", 64)
    queue_length_address: int = _limit("The same, for all visitors of one network address.", 48)
    benchmarks_address: int = _limit("Benchmarks that may run at once from one network address.", 4)
    requests_per_minute_address: int = _limit("Requests from one network address in a minute.", 3000)
    max_request_kilobytes: int = _limit("Size of one request.", 512)
    kept_megabytes: int = _limit("Memory for finished answers, which Save reads; the oldest are dropped first.", 256)
    kept_minutes: int = _limit("How long a finished answer is kept.", 60)
    prefix_megabytes: int = _limit("Prompt cache of chats: a next turn reads only its new part; 0 stores nothing.", 256)
    sessions: int = _limit("Open browser tabs that the server remembers.", 200)

    def __post_init__(self) -> None:
        for limit in fields(self):
            value, least = getattr(self, limit.name), _LEAST.get(limit.name, 1)
            if not is_count(value, least):
                option = f"--{limit.name.replace('_', '-')}"
                raise ValueError(words.LIMIT_OUT_OF_RANGE.format(option=option, least=f"{least:,}", value=value))

    def check(self, asking: Asking) -> Asking:
        """Reject a request that is too long before it enters the queue; return the request with its token limit.

        Raises:
            ValueError: the prompt or the answer is too long.
        """
        characters = sum(len(message["content"]) for message in asking.messages)
        if characters > self.max_prompt_characters:
            excess = characters - self.max_prompt_characters
            sentence = words.PROMPT_TOO_LONG.format(value=characters, limit=self.max_prompt_characters, excess=excess)
            raise ValueError(sentence + chat_counts(asking.messages))
        # The beginning of a continued answer is read, not written
        if asking.params.max_new_tokens - len(asking.answer_prefix_ids) > self.max_new_tokens:
            raise ValueError(words.LENGTH_TOO_LONG.format(limit=self.max_new_tokens))
        return replace(asking, max_prompt_tokens=self.max_prompt_tokens)
