"""Log probabilities of committed tokens and of their alternatives, for requests that record them."""

import math
from collections.abc import Sequence

from torch import Tensor

from jakiro.config import ALTERNATIVES
from jakiro.ops import kernels
from jakiro.text import TokenText
from jakiro.trace import Ranked, Scored


def token_logprobs(
    logits: Tensor, token_ids: Sequence[int], count: int, token_text: TokenText, temperature: float = 1
) -> tuple[tuple[Scored, ...], ...]:
    """Return for each token its log probability, followed by the most probable tokens in its place.

    Args:
        logits: (n, vocab_size), one row for each of the n tokens.
        count: number of most probable tokens; fewer are returned if fewer are possible.
        temperature: above 0; logits are divided by it.
    """
    likeliest = _likeliest(logits, max(1, min(count, logits.shape[-1])), 1 / temperature)
    rows = []
    for row, (token_id, ids, logprobs) in enumerate(
        zip(token_ids, *(part.tolist() for part in likeliest), strict=True)
    ):
        if token_id in ids:
            logprob = logprobs[ids.index(token_id)]
        else:
            distance = float(logits[row, token_id].float() - logits[row, ids[0]].float())
            logprob = logprobs[0] + distance / temperature
        # JSON has no NaN; a token without a score has no probability
        logprob = -math.inf if math.isnan(logprob) else logprob
        possible = [pair for pair in zip(ids[:count], logprobs, strict=False) if math.isfinite(pair[1])]
        pairs = [(token_id, logprob), *possible]
        rows.append(tuple(Scored(pair_id, token_text.piece(pair_id), value) for pair_id, value in pairs))
    return tuple(rows)


def token_alternatives(
    logits: Tensor, token_ids: Sequence[int], temperature: float, token_text: TokenText
) -> tuple[Ranked, ...]:
    """Return the rank of each token and the most probable tokens in its place.

    Args:
        logits: (n, vocab_size) from which the n tokens were chosen, after the logits processors.
        temperature: 0 counts as 1.
    """
    alternatives = []
    for row, tokens in enumerate(token_logprobs(logits, token_ids, ALTERNATIVES, token_text, temperature or 1)):
        ids, token_id = [token.token_id for token in tokens[1:]], token_ids[row]
        # Most tokens are among these; counting over the whole row is needed for the others only
        if token_id in ids:
            rank = ids.index(token_id) + 1
        else:
            rank = int((logits[row] > logits[row, token_id]).count_nonzero()) + 1
        alternatives.append(Ranked(rank, tokens))
    return tuple(alternatives)


def _likeliest(logits: Tensor, count: int, weight: float) -> tuple[Tensor, Tensor]:
    """Return the (n, count) int64 ids of the largest logits, best first, and their log softmax of weight · logits."""
    native = kernels.current().sampling_for(logits)
    if native is not None and native.ranks_up_to(count):
        return native.best_tokens(logits, weight, None, 0.0, count, chances=False)[:2]
    values, ids = (logits.float() * weight).log_softmax(-1).topk(count, dim=-1)
    return ids, values
