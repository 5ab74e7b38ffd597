"""What is asked of the engine: a prompt as tokens, and the settings; one request serves all methods of a race."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jakiro.config import SamplingParams, TreeConfig, is_count, require, shortened
from jakiro.decode.prefix_cache import OwnPrefixes
from jakiro.text import TokenText, all_arguments, as_messages, encode_messages

Messages = str | Sequence[dict] | Sequence[int]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the target reads before it chooses a token.

    Attributes:
        ids: of the question and, from `answer_start` on, of the beginning of an answer that goes on after it.
        forced: places in that beginning whose tokens somebody chose.
        messages, raw, told: what the question was encoded from, for traces: messages and what the chat template knew
            besides, or a bare text.
    """

    ids: tuple[int, ...]
    answer_start: int
    messages: tuple[dict, ...] = ()
    raw: str | None = None
    told: dict | None = None
    forced: tuple[int, ...] = ()
    prediction_ids: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        tokenizer,
        messages: Messages,
        raw: bool = False,
        template_arguments: Mapping[str, object] | None = None,
        answer_prefix_ids: Sequence[int] = (),
        forced: Sequence[int] | None = None,
        prediction: str = "",
    ) -> "Prompt":
        """Encodes messages, or with `raw` a bare text or token ids to continue.

        Args:
            template_arguments: what the chat template is told besides.
            prediction: the text of the answer that the client expects; it is drafted, see `drafters.prediction`.
            answer_prefix_ids: the beginning of the answer. forced: places in it; None is the last one.

        Raises:
            ValueError: nothing was asked, or a message is malformed; see `encode_messages`. The beginning is no list of
                token ids, or a place is not in it.
        """
        if raw and not isinstance(messages, str):
            require(bool(messages), "The prompt is empty; give it some tokens.")
            ids = list(_token_ids("A prompt", messages))
            messages = tokenizer.decode(ids)
        else:
            ids = encode_messages(tokenizer, messages, messages if raw else None, template_arguments)
        given = tuple(_token_ids("The beginning of an answer", answer_prefix_ids))
        forced = range(len(given))[-1:] if forced is None else _token_ids("Forced places", forced)
        require(
            max(forced, default=-1) < len(given),
            f"Forced places must be below {len(given)}, the length of the answer's beginning; you gave {list(forced)}.",
        )
        predicted = tuple(TokenText(tokenizer).encode(prediction)) if prediction else ()
        begun = {"answer_start": len(ids), "forced": tuple(forced), "prediction_ids": predicted}
        whole = (*ids, *given)
        if raw:
            return cls(whole, raw=messages, **begun)
        told = all_arguments(tokenizer, template_arguments)
        return cls(whole, messages=tuple(as_messages(messages)), told=told or None, **begun)

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """The beginning of the answer."""
        return self.ids[self.answer_start :]


def _token_ids(what: str, given: object) -> Sequence[int]:
    fits = isinstance(given, (list, tuple)) and all(is_count(each, 0) for each in given)
    require(fits, f"{what} must be a list of whole numbers, 0 or more; you gave {shortened(given)}.")
    return given


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
