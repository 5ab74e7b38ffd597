"""The reference backend: passes over caches that are sliced to their length.

It runs on every device, without captured passes. `jakiro/core/backend.py` documents the methods.
"""

import torch
from torch import Tensor

from jakiro.backends.outcome import read_outcome
from jakiro.config import SamplingParams, TreeConfig, TreeSize
from jakiro.core.logits_processors import LogitsProcessorList
from jakiro.core.noise import KeyedNoise, NoiseRows, NoiseSource
from jakiro.core.tree import DraftTree
from jakiro.core.verify import Outcome, verify
from jakiro.drafters.base import Drafter
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.models.passes import Scores
from jakiro.models.target import TargetModel


class TorchBackend:
    """Backend with passes that grow with the context; see `jakiro.core.backend.Backend`."""

    fixed_size: TreeSize | None = None
    can_profile = True
    status: dict | None = None

    def __init__(self, target: TargetModel) -> None:
        self.target = target
        self.notices: list[str] = []

    @property
    def is_batch_invariant(self) -> bool:
        return self.target.bit_identical

    @property
    def max_reusable_tokens(self) -> int:
        return self.target.max_reusable_tokens

    def with_target(self, target: TargetModel, drafter: Drafter) -> "TorchBackend":
        return TorchBackend(target)

    def open(
        self, drafter: Drafter, sampling: SamplingParams, tree: TreeConfig, num_prompt_tokens: int, max_length: int
    ) -> "TorchSession":
        num_nodes = 1 if tree.root_only else max(tree.nodes, MAX_CHAIN + 1)
        return TorchSession(self.target, drafter, sampling, max_length + self.target.row_bucket(num_nodes))

    def close(self, session: "TorchSession") -> None:
        """Do nothing: the session's memory is freed with the session."""


class TorchSession:
    """State of one answer; see `jakiro.core.backend.BackendSession`.

    Args:
        capacity: rows of the target's cache: prompt, answer and the largest tree together.

    Attributes:
        cache: the target's KV cache.
        root: (1,) int64, the last committed token.
    """

    can_draft_ahead, note = False, ""

    def __init__(self, target: TargetModel, drafter: Drafter, sampling: SamplingParams, capacity: int) -> None:
        self.target, self.drafter, self.sampling = target, drafter, sampling
        self.noise = KeyedNoise(sampling.seed)
        self.noise_rows = NoiseRows(self.noise, torch.arange(target.vocab_size, device=target.device))
        self.cache = target.new_cache(capacity)
        self.root: Tensor | None = None
        self._processors: LogitsProcessorList | None = None
        self._scores: Scores | None = None
        self._processed_logits: Tensor | None = None
        # Committed rows of the cache; the rows of the scored tree follow them
        self._num_rows = 0

    @property
    def draft_noise(self) -> NoiseSource:
        return self.noise_rows if self.sampling.unfiltered else self.noise

    def load_cache(self, rows: Tensor) -> None:
        self.cache.load_prefix(rows)

    def export_cache(self, length: int) -> Tensor:
        return self.cache.first(length).clone()

    def prefill(self, prompt_ids: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.target.prefill(prompt_ids, self.cache)
        self._num_rows = self.cache.length
        return features, logits

    def begin(self, root: Tensor, processors: LogitsProcessorList | None = None) -> None:
        self.root, self._processors = root, processors

    def root_tree(self) -> DraftTree:
        return DraftTree.root_only(self.root)

    def place_tree(self, tree: DraftTree) -> DraftTree:
        return tree

    def score(self, tree: DraftTree) -> None:
        if self.cache.length > self._num_rows:
            self.cache.keep(self._num_rows, [])
        self._scores = self.target.score(tree, self.cache)

    def verify(self, tree: DraftTree, whole_vocabulary: bool = False) -> Outcome:
        options = {"prefix_length": self.target.vocab_size} if whole_vocabulary else {}
        mask, logits, root_position = self._scores.mask, self._scores.logits, self._num_rows
        if self._processors is not None:
            logits = self._processors.adjust(logits, tree, mask)
        noise_rows = None
        if self.sampling.unfiltered:
            noise_rows = self.noise_rows.rows(root_position + 1, tree.max_depth + 1)
        self._processed_logits = logits
        verification = verify(tree, mask, logits, self.sampling, self.noise, root_position, noise_rows, **options)
        return read_outcome(tree, verification)

    def logits(self, num_nodes: int) -> Tensor:
        return self._scores.logits[:num_nodes]

    def processed_logits(self, num_nodes: int) -> Tensor:
        return self._processed_logits[:num_nodes]

    def commit(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        path = [0, *outcome.accepted_path]
        self.cache.keep(self._num_rows, path)
        self._num_rows = self.cache.length
        device = self.target.device
        ids = torch.tensor(outcome.new_ids, dtype=torch.int64, device=device)
        self.root = ids[-1:]
        return ids, self._scores.features.index_select(0, torch.tensor(path, device=device))
