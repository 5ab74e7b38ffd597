"""Training rule of DFlash heads: every position of a text is the root of its own block."""

from collections.abc import Iterator

import torch
from torch import Tensor

from jakiro.heads.dflash.network import DFlashHead
from jakiro.heads.learning import UnrolledRows, later


def levels(head: DFlashHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """Yield the predictions of each level; a block attends to the text before its root and to itself.

    See `HeadKind.levels`.
    """
    size, length = head.config.block_size, features.shape[1]
    places, steps = torch.arange(length, device=ids.device), torch.arange(size, device=ids.device)
    rows = UnrolledRows()
    head.write(features, places, rows)
    # Row s is the root at s + 1, after the features 0 to s
    owners = places.repeat_interleave(size)
    positions = owners + 1 + steps.repeat(length)
    visible = torch.cat([places <= owners[:, None], owners == owners[:, None]], dim=1)
    token_ids = ids[:, 1:, None].expand(-1, -1, size).clone()
    token_ids[..., 1:] = head.config.mask_token_id
    embeddings = head.embed(token_ids.flatten(1))
    hidden = head.run(embeddings, positions, torch.cat([places, positions]), owners + 1, visible, rows)
    predicted = hidden.unflatten(1, (length, size))[:, :, size - head.levels :]
    for number, rows_of_level in enumerate(predicted.unbind(2)):
        yield later(rows_of_level, number)
