"""Drafting with a head: the drafter that answers share, one answer's session, and methods that differ in either.

The session's cache holds committed tokens, as the target's does; drafted ones are dropped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.noise import NoiseSource
from jakiro.drafters.base import (
    Committed,
    Context,
    Drafter,
    DraftSession,
    HeadEvidence,
    Method,
    Needs,
    Proposal,
    Proposer,
    Resources,
    TreeLimits,
)
from jakiro.drafters.experts import EVIDENCE, expert_evidence, experts_of
from jakiro.drafters.limited import limited
from jakiro.drafters.tree_growth import TreeGrower
from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
from jakiro.heads.eagle import EAGLE
from jakiro.heads.jakiro import JAKIRO
from jakiro.heads.layers import HeadOutput
from jakiro.ops import kernels
from jakiro.ops.cache import RowCache

LAYERS = Needs(head=(JAKIRO.name, EAGLE.name))


@dataclass(eq=False)
class HeadDrafter(Drafter):
    """Drafts with a head that is bound to its target.

    Attributes:
        grower: makes what grows a step's tree, from the arguments of `TreeGrower`.
        proposers: of all its heads, or by a head's config.
        has_evidence: whether its trees carry the experts' evidence, see `expert_evidence`.
        captured: whether passes of a grower of its own have fixed shapes, so that they can be captured.
        max_positions: that the head was trained for, where the target reads more; else None.
    """

    head: DraftHead
    info: dict | None = None
    grower: Callable[..., TreeGrower] = TreeGrower
    proposers: tuple[Proposer, ...] | Callable[[DraftConfig], tuple[Proposer, ...]] = experts_of
    has_evidence: bool = True
    captured: bool = False
    max_positions: int | None = None

    def __post_init__(self) -> None:
        if callable(self.proposers):
            self.proposers = self.proposers(self.head.config)
        count = self.head.config.num_experts
        self.evidence = tuple(zip(EVIDENCE, (count, count, 1), strict=True)) if self.has_evidence else ()

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> DraftSession:
        return limited(partial(self._begin, prompt, sampling, noise), self.max_positions, prompt)

    def _begin(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "HeadSession":
        capacity = len(prompt.token_ids) + sampling.max_new_tokens
        session = HeadSession(self, sampling, noise, capacity)
        read = session.load_prefix(prompt.head_rows.get(self.head))
        session.take(prompt.ids[self.head.skipped_tokens + read :], prompt.features[read:])
        return session

    @property
    def node_evidence(self) -> HeadEvidence | None:
        """Computes that of its trees, see `best_tree`; None for none."""
        return partial(expert_evidence, self.head) if self.has_evidence else None

    def capturable_in(self, slot) -> Drafter | None:
        # Others run beside captured passes of the target
        capturable = self.head.capturable and (self.captured or self.grower is TreeGrower)
        return slot.head_drafter(self) if capturable else None


class HeadSession(DraftSession):
    """Drafting for one answer: the head's cache, the features it has not taken in yet, the noise it ranks with.

    Args:
        capacity: positions that the cache starts with; it grows where a wide tree needs more.
    """

    def __init__(self, drafter: HeadDrafter, sampling: SamplingParams, noise: NoiseSource, capacity: int) -> None:
        self.head = head = drafter.head
        self.sampling, self.grower, self.evidence = sampling, drafter.grower, drafter.node_evidence
        self.device, self.dtype = head.output_weight.device, head.output_weight.dtype
        self.cache = head.new_cache(capacity)
        self.noise_rows = noise.over(head.draft_token_ids)
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._last: tuple[Tensor, Tensor] | None = None
        self._root: HeadOutput | None = None
        self._root_token: Tensor | None = None

    def observe(self, committed: Committed) -> None:
        self.take(committed.ids, committed.features)

    def take(self, ids: Tensor, features: Tensor) -> None:
        """Committed tokens, (n,) int64, and the target's features one position before each, for the next tree."""
        self._pending.append((ids.to(self.device), features.to(device=self.device, dtype=self.dtype)))

    def load_prefix(self, rows: Tensor | None) -> int:
        """Fills the empty cache with an earlier answer's rows; returns how many they are."""
        if rows is not None:
            self.cache.load_prefix(rows)
        return self.cache.length

    def head_rows(self) -> Mapping[object, Tensor]:
        return {self.head: self.cache.first(self.cache.length).clone()} if isinstance(self.cache, RowCache) else {}

    def rewind(self, length: int) -> None:
        self._pending = []
        self.cache.keep(length - self.head.skipped_tokens)

    @torch.inference_mode()
    def catch_up(self) -> None:
        """Takes in what is pending in one pass; then the cache holds all committed tokens, the root being the last."""
        if not self._pending:
            return
        token_ids, features = self._taken()
        committed = self.cache.length
        self._reserve(token_ids.shape[0] + self.head.root_rows - 1)
        self._root = _last_rows(self.head.extend(token_ids, features, self.cache), self.head.root_rows)
        self.cache.keep(committed + token_ids.shape[0])
        self._root_token = token_ids[-1:]

    def _taken(self) -> tuple[Tensor, Tensor]:
        """What was pending; the last token once more where nothing is."""
        if not self._pending:
            self.cache.keep(self.cache.length - 1)
            return self._last
        ids, features = zip(*self._pending, strict=True)
        ids, features = (parts[0] if len(parts) == 1 else torch.cat(parts) for parts in (ids, features))
        self._pending, self._last = [], (ids[-1:], features[-1:])
        return ids, features

    @torch.inference_mode()
    def propose(self, limits: TreeLimits) -> Proposal:
        """Grows a tree; afterwards the cache holds the committed tokens and no others."""
        tree = limits.tree
        grow_in_one_call = kernels.current().tree_growth(self.head, tree) if self.grower is TreeGrower else None
        if grow_in_one_call is not None:
            pending = self._taken()
            committed = self.cache.length + pending[0].shape[0]
        else:
            self.catch_up()
            committed = self.cache.length
        self._reserve(committed - self.cache.length + max(tree.depth * tree.width, tree.nodes, self.head.drafted_rows))
        noise = None
        if tree.shared_noise and not self.sampling.greedy:
            noise = self.noise_rows.rows(committed + self.head.skipped_tokens, tree.depth)
        if limits.added is not None and not tree.root_only:
            noise = self._with_rule(noise, limits.added(), tree.depth)
        asked = (self.sampling, tree, noise, limits.chain)
        if grow_in_one_call is not None:
            proposal = grow_in_one_call(self.head, self.cache, pending, *asked, self.evidence is not None)
        else:
            root = (self._root, self._root_token)
            grower = self.grower(self.head, self.cache, *root, *asked, self.evidence, self._explored(limits))
            proposal = grower.grow()
        self.cache.keep(committed)
        return proposal

    def _with_rule(self, noise: Tensor | None, added: Tensor, depth: int) -> Tensor:
        """The noise that candidates are ranked with, and on the root's what the answer's rule adds to its logits."""
        vocabulary = self.head.draft_token_ids
        noise = added.new_zeros((depth, len(vocabulary))) if noise is None else noise.clone()
        noise[0] += added[vocabulary] / (self.sampling.temperature or 1.0)
        return noise

    def _explored(self, limits: TreeLimits) -> int | None:
        """Nodes of the tree in which a candidate must have a place to be expanded.

        On a GPU all are: reading scores on the host would cost more than the rows it saves.
        """
        return limits.tree.nodes if self.device.type == "cpu" else None

    def _reserve(self, rows: int) -> None:
        """Makes room for so many more positions."""
        needed = self.cache.length + rows
        if needed > self.cache.capacity:
            smaller, self.cache = self.cache, self.head.new_cache(2 * needed)
            self.cache.load_prefix(smaller.first(smaller.length))


def _last_rows(output: HeadOutput, count: int) -> HeadOutput:
    """The output at the last positions only, as a pass over them alone would give it."""
    return HeadOutput(*(None if part is None else part[..., -count:, :] for part in output))


def head_method(drafter: Callable[[DraftHead, dict | None], HeadDrafter], needs: Needs = LAYERS, **fields) -> Method:
    """A method that drafts with the head that suits it, within the length that the head was trained for."""

    def load(resources: Resources) -> HeadDrafter:
        head, info = resources.head_for(needs)
        head.attach(resources.target)
        loaded, positions = drafter(head, info), head.config.max_position_embeddings
        if positions < resources.target.max_positions:
            loaded.max_positions = positions
        return loaded

    return Method(needs=needs, load=load, drafter=drafter, **fields)
