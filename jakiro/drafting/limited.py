"""Drafting within the length that a head was trained for; after it, decoding is plain."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import NoiseSource
from jakiro.drafting.base import (
    Committed,
    Context,
    Drafter,
    DraftSession,
    Proposal,
    TreeLimits,
)


@dataclass(eq=False)
class LimitedDrafter(Drafter):
    """A drafter that stops at the length that its head was trained for.

    Attributes:
        drafter: what drafts within the limit.
        max_positions: positions the head was trained for.
    """

    drafter: Drafter
    max_positions: int

    def __post_init__(self) -> None:
        inner = self.drafter
        self.proposers, self.evidence, self.info = inner.proposers, inner.evidence, inner.info

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "LimitedSession":
        length = len(prompt.token_ids)
        session = self.drafter.start(prompt, sampling, noise) if length <= self.max_positions else None
        return LimitedSession(session, self.max_positions, length - 1)

    def capturable_in(self, slot) -> "LimitedDrafter | None":
        inner = self.drafter.capturable_in(slot)
        return None if inner is None else LimitedDrafter(inner, self.max_positions)

    def passes(self, tree: TreeConfig, greedy: bool, chained: bool = False) -> Iterable:
        return self.drafter.passes(tree, greedy, chained)


@dataclass
class LimitedSession(DraftSession):
    """One answer's drafting; after the limit every tree is its root alone and a note says why.

    Attributes:
        root_position: of the last committed token.
    """

    session: DraftSession | None
    max_positions: int
    root_position: int

    def observe(self, committed: Committed) -> None:
        self.root_position += len(committed.token_ids)
        if self.session is not None:
            self.session.observe(committed)

    def propose(self, limits: TreeLimits) -> Proposal:
        if self.session is None or self.root_position + limits.tree.depth > self.max_positions:
            # For the rest of the answer: the head's cache lacks all rows that are committed from here on
            self.session = None
            trained = f"{self.max_positions:,}"
            return Proposal(note=f"The draft head was trained for {trained} positions: after them, decoding is plain.")
        return self.session.propose(limits)

    def head_rows(self) -> Mapping[object, torch.Tensor]:
        return {} if self.session is None else self.session.head_rows()

    def rewind(self, length: int) -> None:
        self.root_position = length - 1
        if self.session is not None:
            self.session.rewind(length)
