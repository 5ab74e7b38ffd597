"""What is asked of the engine: a prompt as tokens, and the settings; one request serves all methods of a race."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jakiro.config import SamplingParams, TreeConfig
from jakiro.engine.prefix import OwnPrefixes
from jakiro.text import all_arguments, as_messages, encode_messages

Messages = str | Sequence[dict]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the target reads before it chooses a token.

    Attributes:
        ids: of the question and, from `answer_start` on, of the beginning of an answer that goes on after it.
        messages, raw, told: what the question was encoded from, for traces: messages and what the chat template knew
            besides, or a bare text.
    """

    ids: tuple[int, ...]
    answer_start: int
    messages: tuple[dict, ...] = ()
    raw: str | None = None
    told: dict | None = None

    @classmethod
    def of(
        cls, tokenizer, messages: Messages, raw: bool = False, template_arguments: Mapping[str, object] | None = None
    ) -> "Prompt":
        """Encodes messages, or with `raw` a bare text to continue.

        Args:
            template_arguments: what the chat template is told besides.

        Raises:
            ValueError: nothing was asked, or a message is malformed; see `encode_messages`.
        """
        ids = encode_messages(tokenizer, messages, messages if raw else None, template_arguments)
        if raw:
            return cls(tuple(ids), len(ids), raw=messages)
        told = all_arguments(tokenizer, template_arguments)
        return cls(tuple(ids), len(ids), tuple(as_messages(messages)), told=told or None)

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """The beginning of the answer."""
        return self.ids[self.answer_start :]


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and how to answer it.

    Attributes:
        tree: how trees grow; plain decoding ignores it.
        prefixes: where to look for what the prompt begins with, and where to keep what is read; None for neither.
    """

    prompt: Prompt
    sampling: SamplingParams
    tree: TreeConfig
    prefixes: OwnPrefixes | None = None

    def within(self, max_positions: int) -> "Request":
        """The same, with as many tokens as a target of so many positions has room for.

        Raises:
            ValueError: the prompt is longer than the target reads.
        """
        length, wanted = len(self.prompt.ids), self.sampling.max_new_tokens
        if length > max_positions:
            raise ValueError(
                f"Your prompt has {length:,} tokens; this model reads {max_positions:,}. "
                f"Shorten it by {length - max_positions:,}."
            )
        limit = min(wanted, max_positions - self.prompt.answer_start + 1)
        return replace(self, sampling=replace(self.sampling, max_new_tokens=limit))
