"""Drafting up to the length that a head was trained for; after it, decoding is plain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from jakiro.drafters.base import Committed, Context, DraftRequest, DraftSession, Proposal


def limited(begin: Callable[[], DraftSession], max_positions: int | None, prompt: Context) -> DraftSession:
    """Return the session that `begin` creates, limited to `max_positions`.

    Args:
        begin: Creates the session; not called if `prompt` is longer than the limit.
        max_positions: Positions that the head was trained for; None for no limit.
        prompt: Context of the session; only its number of tokens is used.
    """
    if max_positions is None:
        return begin()
    length = len(prompt.token_ids)
    return LimitedSession(begin() if length <= max_positions else None, max_positions, length - 1)


@dataclass
class LimitedSession(DraftSession):
    """A session that proposes only the root after the limit, with a note on the reason.

    Attributes:
        session: The limited session; None once the limit is reached.
        max_positions: Positions that the head was trained for.
        root_position: Position of the last committed token.
    """

    session: DraftSession | None
    max_positions: int
    root_position: int

    def observe(self, committed: Committed) -> None:
        self.root_position += len(committed.token_ids)
        if self.session is not None:
            self.session.observe(committed)

    def propose(self, request: DraftRequest) -> Proposal:
        if self.session is None or self.root_position + request.tree.depth > self.max_positions:
            # Permanently, because the head's cache will lack the rows committed from here on
            self.session = None
            trained = f"{self.max_positions:,}"
            return Proposal(note=f"The draft head was trained for {trained} positions: after them, decoding is plain.")
        return self.session.propose(request)

    @property
    def num_tokens(self) -> int | None:
        return None if self.session is None else self.session.num_tokens

    def head_rows(self) -> Mapping[object, torch.Tensor]:
        return {} if self.session is None else self.session.head_rows()

    def rewind(self, length: int) -> None:
        self.root_position = length - 1
        if self.session is not None:
            self.session.rewind(length)
