"""The request of one generation: a prompt as tokens, and the settings. One request serves all methods of a race."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jakiro.config import SamplingParams, TreeConfig, is_count, require, shortened
from jakiro.decode.prefix_cache import OwnPrefixes
from jakiro.text import as_messages, encode_messages, merge_template_arguments

Messages = str | Sequence[dict] | Sequence[int]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt and how to continue it.

    Attributes:
        prompt_ids: token ids of the prompt and, from `answer_start` on, of a given beginning of the completion.
        answer_start: number of prompt tokens before that beginning.
        sampling: how tokens are chosen.
        tree: bounds of the draft trees; ignored by plain decoding.
        messages: the conversation that was encoded; empty for a raw prompt.
        raw_prompt: the text that was encoded; None for messages.
        template_arguments: arguments of the chat template; None for none.
        forced: indices of the tokens in the given beginning that the user chose by hand; recorded in the trace.
        prediction_ids: tokens of the completion that the client expects; empty for none.
        prefixes: where cached prefixes are read and stored; None for no prefix cache.
    """

    prompt_ids: tuple[int, ...]
    answer_start: int
    sampling: SamplingParams
    tree: TreeConfig
    messages: tuple[dict, ...] = ()
    raw_prompt: str | None = None
    template_arguments: dict | None = None
    forced: tuple[int, ...] = ()
    prediction_ids: tuple[int, ...] = ()
    prefixes: OwnPrefixes | None = None

    @classmethod
    def encode(
        cls,
        tokenizer,
        messages: Messages,
        sampling: SamplingParams,
        tree: TreeConfig,
        raw: bool = False,
        template_arguments: Mapping[str, object] | None = None,
        answer_prefix_ids: Sequence[int] = (),
        forced: Sequence[int] | None = None,
    ) -> "GenerationRequest":
        """Encode messages, or with `raw` a text or token ids to continue.

        Args:
            template_arguments: arguments of the chat template for this prompt.
            answer_prefix_ids: beginning of the completion.
            forced: indices into that beginning; None for its last token.

        Raises:
            ValueError: the prompt is empty, a message is malformed (see `encode_messages`), the beginning is not a list
                of token ids, or an index of `forced` is outside it.
        """
        if raw and not isinstance(messages, str):
            require(bool(messages), "The prompt is empty; give it some tokens.")
            ids = list(_check_token_ids("A prompt", messages))
            messages = tokenizer.decode(ids)
        else:
            ids = encode_messages(tokenizer, messages, messages if raw else None, template_arguments)
        beginning = tuple(_check_token_ids("answer_prefix_ids", answer_prefix_ids))
        forced = range(len(beginning))[-1:] if forced is None else _check_token_ids("forced", forced)
        require(
            max(forced, default=-1) < len(beginning),
            f"forced must have indices below {len(beginning)}, the length of answer_prefix_ids; got {list(forced)}.",
        )
        return cls(
            prompt_ids=(*ids, *beginning),
            answer_start=len(ids),
            sampling=sampling,
            tree=tree,
            messages=() if raw else tuple(as_messages(messages)),
            raw_prompt=messages if raw else None,
            template_arguments=None if raw else merge_template_arguments(tokenizer, template_arguments) or None,
            forced=tuple(forced),
        )

    @property
    def answer_prefix_ids(self) -> tuple[int, ...]:
        """Token ids of the given beginning of the completion."""
        return self.prompt_ids[self.answer_start :]

    @property
    def max_length(self) -> int:
        """Upper bound of prompt and completion together."""
        return self.answer_start + self.sampling.max_new_tokens

    def limited_to(self, max_positions: int) -> "GenerationRequest":
        """Return the request with the number of new tokens limited to a target of `max_positions`.

        Raises:
            ValueError: the prompt is longer than `max_positions`.
        """
        length = len(self.prompt_ids)
        if length > max_positions:
            raise ValueError(
                f"Your prompt has {length:,} tokens; this model reads {max_positions:,}. "
                f"Shorten it by {length - max_positions:,}."
            )
        limit = min(self.sampling.max_new_tokens, max_positions - self.answer_start + 1)
        return replace(self, sampling=replace(self.sampling, max_new_tokens=limit))


def _check_token_ids(label: str, value: object) -> Sequence[int]:
    is_valid = isinstance(value, (list, tuple)) and all(is_count(token_id, 0) for token_id in value)
    require(is_valid, f"{label} must be a list of whole numbers, 0 or more; got {shortened(value)}.")
    return value
