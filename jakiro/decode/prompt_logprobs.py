"""Log probabilities of the tokens of a prompt."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from jakiro.config import MOST_LOGPROBS, is_count, require
from jakiro.decode.logprobs import token_logprobs
from jakiro.models.target import TargetModel
from jakiro.text import TokenText
from jakiro.trace import Scored

# Rows of logits computed at once: with a vocabulary of 150,000 tokens they take 40 MB
CHUNK = 64


class PromptScores(NamedTuple):
    """Log probabilities of a prompt.

    Attributes:
        token_ids: tokens of the prompt.
        text: the prompt, special tokens left out.
        logprobs: one entry per token after the first: the token, then the likeliest tokens in its place.
        special_tokens: names of special tokens by id, as text.
    """

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[tuple[Scored, ...], ...]
    special_tokens: dict[str, str]


@torch.inference_mode()
def score_prompt(target: TargetModel, token_text: TokenText, token_ids: Sequence[int], count: int) -> PromptScores:
    """Compute the log probability of every token of a prompt given the tokens before it.

    Args:
        target: the model.
        token_text: its tokens' bytes and text.
        token_ids: the prompt.
        count: number of likeliest tokens to report in each place, at most `MOST_LOGPROBS`.

    Raises:
        ValueError: the prompt is longer than the model reads, or `count` is out of range.
    """
    require(
        is_count(count, 0) and count <= MOST_LOGPROBS,
        f"logprobs must be a whole number from 0 to {MOST_LOGPROBS}; got {count!r}.",
    )
    require(
        len(token_ids) <= target.max_positions,
        f"Your prompt has {len(token_ids):,} tokens; this model reads {target.max_positions:,}.",
    )
    rows = []
    if len(token_ids) > 1:
        ids = torch.tensor(token_ids[:-1], device=target.device)
        features, _ = target.prefill(ids, target.new_cache(len(ids)))
        for start in range(0, len(ids), CHUNK):
            logits = target.logits(features[start : start + CHUNK, : target.hidden_size])
            rows += token_logprobs(logits, token_ids[start + 1 : start + 1 + len(logits)], count, token_text)
    special = {str(token_id): name for token_id, name in token_text.special_tokens.items()}
    return PromptScores(tuple(token_ids), token_text.decode(token_ids), tuple(rows), special)
