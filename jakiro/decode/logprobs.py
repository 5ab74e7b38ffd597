"""What the target says of committed tokens and of others in their place, where an answer asks for it."""

import math
from collections.abc import Sequence

from torch import Tensor

from jakiro.config import ALTERNATIVES
from jakiro.ops import kernels
from jakiro.text import TokenText
from jakiro.trace import Ranked, Scored


def scored(
    logits: Tensor, token_ids: Sequence[int], count: int, token_text: TokenText, temperature: float = 1
) -> tuple[tuple[Scored, ...], ...]:
    """For each token, it and then the likeliest in its place: log-softmax of logits over the temperature.

    Args:
        logits: (n, vocab_size) that the n tokens are looked up in.
        count: of the likeliest; fewer where fewer may come.
    """
    found = _likeliest(logits, max(1, min(count, logits.shape[-1])), 1 / temperature)
    rows = []
    for row, (given, ids, logprobs) in enumerate(zip(token_ids, *(part.tolist() for part in found), strict=True)):
        if given in ids:
            own = logprobs[ids.index(given)]
        else:
            own = logprobs[0] + float(logits[row, given].float() - logits[row, ids[0]].float()) / temperature
        others = [pair for pair in zip(ids[:count], logprobs, strict=False) if math.isfinite(pair[1])]
        rows.append(tuple(Scored(each, token_text.piece(each), logprob) for each, logprob in [(given, own), *others]))
    return tuple(rows)


def ranked(logits: Tensor, token_ids: Sequence[int], temperature: float, token_text: TokenText) -> tuple[Ranked, ...]:
    """What could have come in the place of each token.

    Args:
        logits: (n, vocab_size) that the n tokens were chosen from, as the answer's rules left them.
        temperature: 0 is taken for 1.
    """
    found = []
    for row, tokens in enumerate(scored(logits, token_ids, ALTERNATIVES, token_text, temperature or 1)):
        ids = [each.token_id for each in tokens[1:]]
        # Most are among the likeliest; only for others the whole row is looked at
        rank = (
            ids.index(token_ids[row]) + 1
            if token_ids[row] in ids
            else int((logits[row] > logits[row, token_ids[row]]).count_nonzero()) + 1
        )
        found.append(Ranked(rank, tokens))
    return tuple(found)


def _likeliest(logits: Tensor, count: int, weight: float) -> tuple[Tensor, Tensor]:
    """(n, count) int64 ids of the largest of each row, best first, and log-softmax of weight · logits there."""
    native = kernels.current().sampling_for(logits)
    if native is not None and native.ranks_up_to(count):
        return native.best_tokens(logits, weight, None, 0.0, count, chances=False)[:2]
    values, ids = (logits.float() * weight).log_softmax(-1).topk(count, dim=-1)
    return ids, values
