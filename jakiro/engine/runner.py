"""The device's side of one answer: caches, the target's passes, verification, the read, the commit.

Two kinds with one face: sliced caches, whose passes are as long as the context (here), and static ones, whose passes
have fixed shapes and addresses and can be captured as CUDA graphs (`lanes.py`). The loop itself is `stream.py`.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.noise import KeyedNoise, NoiseRows
from jakiro.core.sampling import adds_whole_rows
from jakiro.core.tree import DraftTree
from jakiro.core.verify import Outcome, read_back, verify
from jakiro.drafting.base import Drafter, DraftSession
from jakiro.drafting.candidates import Chain, chain_tree
from jakiro.target.model import Scores, TargetModel


class Passes(Protocol):
    """What a stream asks of the device."""

    def prefill(self, prompt_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Reads the prompt, (n,) int64; returns features (n, feature_size) and the last position's logits (1, V)."""

    def begin(self, root: Tensor) -> None:
        """Takes the first token, (1,) int64."""

    def session(self, prompt_ids: Tensor, features: Tensor) -> DraftSession:
        """Drafting for this answer; after `begin`."""

    def root_tree(self) -> DraftTree:
        """The tree of plain decoding."""

    def chain(self, token_ids: Sequence[int], log_estimates: Sequence[float]) -> Chain:
        """What the context expert copies, on the device."""

    def chain_tree(self, chain: Chain) -> DraftTree:
        """The tree that is only a chain."""

    def place(self, tree: DraftTree) -> DraftTree:
        """The same tree where the target's pass reads it."""

    def score(self, tree: DraftTree) -> None:
        """The target's pass over a tree."""

    def read(self, tree: DraftTree, whole_vocabulary: bool = False) -> Outcome:
        """Verifies what was scored and copies the outcome to the host, once."""

    def commit(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """Keeps the accepted rows; returns the new tokens (n,) and the features one position before each (n, H)."""


class SlicedPasses:
    """Passes over caches that are sliced to their length.

    Args:
        capacity: rows of the target's cache: prompt, answer and the widest tree together.
    """

    def __init__(self, target: TargetModel, drafter: Drafter | None, sampling: SamplingParams, capacity: int) -> None:
        self.target, self.drafter, self.sampling = target, drafter, sampling
        self.noise = KeyedNoise(sampling.seed)
        self.noise_rows = NoiseRows(self.noise, torch.arange(target.vocab_size, device=target.device))
        self.cache = target.new_cache(capacity)
        self.root: Tensor | None = None
        self._scores: Scores | None = None
        self._base = 0

    def prefill(self, prompt_ids: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.target.prefill(prompt_ids, self.cache)
        self._base = self.cache.length
        return features, logits

    def begin(self, root: Tensor) -> None:
        self.root = root

    def session(self, prompt_ids: Tensor, features: Tensor) -> DraftSession:
        ids = torch.cat([prompt_ids, self.root])
        noise = self.noise_rows if adds_whole_rows(self.sampling) else self.noise
        return self.drafter.start(ids, features, self.sampling, noise)

    def root_tree(self) -> DraftTree:
        return DraftTree.root_only(self.root)

    def chain(self, token_ids: Sequence[int], log_estimates: Sequence[float]) -> Chain:
        device = self.target.device
        return Chain(torch.tensor(token_ids, device=device), torch.tensor(log_estimates, device=device))

    def chain_tree(self, chain: Chain) -> DraftTree:
        return chain_tree(self.root, chain)

    def place(self, tree: DraftTree) -> DraftTree:
        return tree

    def score(self, tree: DraftTree) -> None:
        if self.cache.length > self._base:
            self.cache.keep(self._base, [])
        self._scores = self.target.score(tree, self.cache)

    def read(self, tree: DraftTree, whole_vocabulary: bool = False) -> Outcome:
        options = {"prefix_length": self.target.vocab_size} if whole_vocabulary else {}
        scores = self._scores
        verification = verify(
            tree, scores.mask, scores.logits, self.sampling, self.noise, self._base, self.noise_rows, **options
        )
        return read_back(tree, verification)

    def commit(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        kept = [0, *outcome.accepted_path]
        self.cache.keep(self._base, kept)
        self._base = self.cache.length
        device = self.target.device
        ids = torch.tensor([*outcome.accepted_ids, outcome.bonus_token_id], device=device)
        self.root = ids[-1:]
        return ids, self._scores.features[torch.tensor(kept, device=device)]
