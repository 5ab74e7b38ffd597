"""The target's own log probabilities of committed tokens, where an answer asks for them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from jakiro.text import TokenText
from jakiro.trace import Scored


def scored(
    logits: Tensor, token_ids: Sequence[int], count: int, token_text: TokenText
) -> tuple[tuple[Scored, ...], ...]:
    """For each token, it and then the likeliest in its place: log-softmax of the logits as the target gave them.

    Args:
        logits: (n, vocab_size) that the n tokens were chosen from, before temperature, filters, rules and noise.
        count: of the likeliest.
    """
    logprobs = logits.float().log_softmax(-1)
    ids = torch.tensor(token_ids, device=logits.device)[:, None]
    ids = torch.cat([ids, logprobs.topk(min(count, logits.shape[-1]), dim=-1).indices], dim=-1)
    values = logprobs.gather(-1, ids)
    return tuple(
        tuple(Scored(token_id, token_text.piece(token_id), value) for token_id, value in zip(*row, strict=True))
        for row in zip(ids.tolist(), values.tolist(), strict=True)
    )
