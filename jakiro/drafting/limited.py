"""Drafting within limits: up to the length a head was trained for, and as chains where a target scores no trees."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.sampling import KeyedNoise
from jakiro.core.tree import DraftTree
from jakiro.drafting.base import Drafter, DraftSession
from jakiro.drafting.merged import Chain


@dataclass(frozen=True, slots=True)
class LimitedDrafter:
    """A drafter that stops where its head was trained no further.

    Attributes:
        drafter: what drafts within the limits.
        max_positions: positions the head was trained for.
        chains_only: propose chains, because the target scores no trees.
    """

    drafter: Drafter
    max_positions: int
    chains_only: bool = False

    def start(self, ids: Tensor, features: Tensor, sampling: SamplingParams, noise: KeyedNoise) -> "LimitedSession":
        session = None
        if ids.shape[0] <= self.max_positions:
            session = self.drafter.start(ids, features, sampling, noise)
        return LimitedSession(self, session, ids[-1:], ids.shape[0] - 1)


@dataclass
class LimitedSession:
    """One answer's drafting; behind the limit every tree is its root alone and `pause` says why.

    Attributes:
        root, root_position: the last committed token, (1,) int64, and its position.
    """

    limits: LimitedDrafter
    session: DraftSession | None
    root: Tensor
    root_position: int
    buckets: tuple[int, ...] = ()
    pause: str | None = field(default=None, init=False)

    def extend(self, committed_ids: Tensor, features: Tensor) -> None:
        self.root = committed_ids[-1:]
        self.root_position += committed_ids.shape[0]
        if self.session is not None:
            self.session.extend(committed_ids, features)

    @torch.inference_mode()
    def propose(self, tree_config: TreeConfig, chain: Chain | None = None) -> DraftTree:
        limit = self.limits.max_positions
        if self.session is None or self.root_position + tree_config.depth > limit:
            # For good: the head misses the rows of everything committed from here on.
            self.session = None
            self.pause = f"The draft head was trained for {limit:,} positions: plain decoding behind them."
            return DraftTree.root_only(self.root)
        self.session.buckets = self.buckets
        if self.limits.chains_only:
            return self.session.propose(replace(tree_config, width=1))
        return self.session.propose(tree_config) if chain is None else self.session.propose(tree_config, chain)
