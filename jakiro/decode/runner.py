"""The device's side of one answer: caches, the target's passes, verification, the read, the commit.

Two kinds have this interface: one with sliced caches, whose passes grow with the context (here), and one with static
caches, whose passes have fixed shapes and addresses and can be captured as CUDA graphs
(`jakiro/backends/cuda_graphs/slot.py`). The loop itself is in `loop.py`.
"""

from typing import Protocol

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.logits_processors import TokenRule
from jakiro.core.noise import KeyedNoise, NoiseRows
from jakiro.core.tree import DraftTree
from jakiro.core.verify import Outcome, verify
from jakiro.decode.outcome import read_back
from jakiro.drafters.base import Context, Drafter, DraftSession, Proposal
from jakiro.models.passes import Scores
from jakiro.models.target import TargetModel


class Runner(Protocol):
    """What a stream asks of the device.

    Attributes:
        max_reusable_tokens: of an earlier answer, whose rows it can begin with without changing a bit of what follows.
        note: a sentence on how this answer runs, for its plans; empty where there is nothing to say.
        drafts_ahead: whether the host goes on before a draft is done, so that the next one may begin early.
    """

    max_reusable_tokens: int
    drafts_ahead: bool
    note: str

    def load_prefix(self, rows: Tensor) -> None:
        """Takes over what `rows` gave of an earlier answer, before `prefill`; at most `max_reusable_tokens`."""

    def prefill(self, prompt_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Reads the prompt, or what follows the rows taken over, (n,) int64.

        Returns:
            Features (n, feature_size) and the last position's logits (1, V).
        """

    def export_cache(self, length: int) -> Tensor:
        """A copy of the target's first rows, (layers, 2, kv_heads, length, head_dim); at most `max_reusable_tokens`."""

    def begin(self, root: Tensor, rule: TokenRule | None = None) -> None:
        """Takes the first token, (1,) int64, and what the answer's settings say about the others."""

    def session(self, drafter: Drafter, prompt: Context) -> DraftSession:
        """Drafting for this answer; after `begin`."""

    def root_tree(self) -> DraftTree:
        """The tree of plain decoding."""

    def place(self, tree: DraftTree) -> DraftTree:
        """The same tree where the target's pass reads it; `score` does so by itself."""

    def score(self, tree: DraftTree) -> None:
        """The target's pass over a tree."""

    def verify(self, proposal: Proposal, whole_vocabulary: bool = False) -> Outcome:
        """Verifies what was scored and copies the outcome to the host, once."""

    def logits(self, num_nodes: int) -> Tensor:
        """(num_nodes, V), the target's at all nodes of the tree that was scored; good until the next pass."""

    def chosen_from(self, num_nodes: int) -> Tensor:
        """The same as the answer's rule left them; after `verify` and before anything is committed."""

    def commit(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """Keeps the accepted rows; returns the new tokens (n,) and the features one position before each (n, H)."""


class SlicedRunner:
    """Passes over caches that are sliced to their length.

    Args:
        capacity: rows of the target's cache: prompt, answer and the widest tree together.
    """

    drafts_ahead, note = False, ""

    def __init__(self, target: TargetModel, sampling: SamplingParams, capacity: int) -> None:
        self.target, self.sampling, self.max_reusable_tokens = target, sampling, target.max_reusable_tokens
        self.noise = KeyedNoise(sampling.seed)
        self.noise_rows = NoiseRows(self.noise, torch.arange(target.vocab_size, device=target.device))
        self.cache = target.new_cache(capacity)
        self.root: Tensor | None = None
        self.rule: TokenRule | None = None
        self._scores: Scores | None = None
        self._chosen_from: Tensor | None = None
        self._base = 0

    def load_prefix(self, rows: Tensor) -> None:
        self.cache.load_prefix(rows)

    def prefill(self, prompt_ids: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.target.prefill(prompt_ids, self.cache)
        self._base = self.cache.length
        return features, logits

    def export_cache(self, length: int) -> Tensor:
        return self.cache.first(length).clone()

    def begin(self, root: Tensor, rule: TokenRule | None = None) -> None:
        self.root, self.rule = root, rule

    def session(self, drafter: Drafter, prompt: Context) -> DraftSession:
        noise = self.noise_rows if self.sampling.unfiltered else self.noise
        return drafter.start(prompt, self.sampling, noise)

    def root_tree(self) -> DraftTree:
        return DraftTree.root_only(self.root)

    def place(self, tree: DraftTree) -> DraftTree:
        return tree

    def score(self, tree: DraftTree) -> None:
        if self.cache.length > self._base:
            self.cache.keep(self._base, [])
        self._scores = self.target.score(tree, self.cache)

    def verify(self, proposal: Proposal, whole_vocabulary: bool = False) -> Outcome:
        options = {"prefix_length": self.target.vocab_size} if whole_vocabulary else {}
        tree, scores = proposal.tree, self._scores
        whole = self.sampling.unfiltered
        noise_rows = self.noise_rows.rows(self._base + 1, tree.max_depth + 1) if whole else None
        logits = scores.logits if self.rule is None else self.rule.adjust(scores.logits, tree, scores.mask)
        self._chosen_from = logits
        verification = verify(tree, scores.mask, logits, self.sampling, self.noise, self._base, noise_rows, **options)
        return read_back(tree, verification)

    def logits(self, num_nodes: int) -> Tensor:
        return self._scores.logits[:num_nodes]

    def chosen_from(self, num_nodes: int) -> Tensor:
        return self._chosen_from[:num_nodes]

    def commit(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        kept = [0, *outcome.accepted_path]
        self.cache.keep(self._base, kept)
        self._base = self.cache.length
        device = self.target.device
        ids = torch.tensor([*outcome.accepted_ids, outcome.bonus_token_id], device=device)
        self.root = ids[-1:]
        return ids, self._scores.features.index_select(0, torch.tensor(kept, device=device))
