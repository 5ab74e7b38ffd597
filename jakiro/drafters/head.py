"""Drafting with a draft head: the shared drafter, the session of a request, and a factory of methods.

The cache of a session holds the committed tokens, as the target's cache does; drafted rows are discarded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import NoiseSource
from jakiro.drafters.base import (
    Committed,
    Context,
    Drafter,
    DraftRequest,
    DraftSession,
    HeadEvidence,
    Method,
    Needs,
    Proposal,
    Proposer,
    Resources,
)
from jakiro.drafters.experts import experts_of
from jakiro.drafters.limited import limited
from jakiro.drafters.tree_growth import GrowthInputs, TreeGrower
from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
from jakiro.heads.eagle import EAGLE
from jakiro.heads.jakiro import JAKIRO
from jakiro.heads.layers import HeadOutput
from jakiro.ops import kernels
from jakiro.ops.cache import RowCache
from jakiro.ops.device import reads_are_free

LAYERS = Needs(head=(JAKIRO.name, EAGLE.name))


@dataclass(eq=False)
class HeadDrafter(Drafter):
    """A drafter with a head that is bound to its target.

    Attributes:
        head: Draft head.
        info: Its "name", "sha256" and "precision" for traces.
        grower: Creates the `TreeGrower` of a step, with the arguments of that class.
        proposers: Proposers, or a function from the head's config to them; None for the head's experts.
        has_evidence: Whether trees contain the head's evidence, see `DraftHead.node_evidence`.
        captured: Whether the passes of a custom grower have fixed shapes, so that they can be captured.
        max_positions: Positions that the head was trained for if the target supports more, else None.
    """

    head: DraftHead
    info: dict | None = None
    grower: Callable[..., TreeGrower] = TreeGrower
    proposers: tuple[Proposer, ...] | Callable[[DraftConfig], tuple[Proposer, ...]] | None = None
    has_evidence: bool = True
    captured: bool = False
    max_positions: int | None = None

    def __post_init__(self) -> None:
        if self.proposers is None:
            self.proposers = experts_of(self.head)
        elif callable(self.proposers):
            self.proposers = self.proposers(self.head.config)
        self.evidence = self.head.evidence_schema if self.has_evidence else ()

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
        """Function that computes the evidence of a tree, or None."""
        return self.head.node_evidence if self.evidence else None


class HeadSession(DraftSession):
    """A session of a `HeadDrafter`: the head's cache, pending features, and the noise for ranking.

    Args:
        capacity: Initial number of positions of the cache; it grows if a wide tree needs more.
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
        """Store committed tokens, (n,) int64, and the target's features one position before each, for the next tree."""
        self._pending.append((ids.to(self.device), features.to(device=self.device, dtype=self.dtype)))

    def load_prefix(self, rows: Tensor | None) -> int:
        """Fill the empty cache with rows of an earlier request; return the number of rows."""
        if rows is not None:
            self.cache.load_prefix(rows)
        return self.cache.length

    def head_rows(self) -> Mapping[object, Tensor]:
        return {self.head: self.cache.first(self.cache.length).clone()} if isinstance(self.cache, RowCache) else {}

    @property
    def num_tokens(self) -> int:
        num_pending = sum(ids.shape[0] for ids, _ in self._pending)
        return self.head.skipped_tokens + self.cache.length + num_pending

    def rewind(self, length: int) -> None:
        self._pending = []
        self.cache.keep(length - self.head.skipped_tokens)

    @torch.inference_mode()
    def catch_up(self) -> None:
        """Process the pending tokens in one pass; afterwards the cache holds all committed tokens, the root last."""
        if not self._pending:
            return
        token_ids, features = self._take_pending()
        committed = self.cache.length
        self._reserve(token_ids.shape[0] + self.head.root_rows - 1)
        output, num_rows = self.head.extend(token_ids, features, self.cache), self.head.root_rows
        self._root = HeadOutput(*(None if part is None else part[..., -num_rows:, :] for part in output))
        self.cache.keep(committed + token_ids.shape[0])
        self._root_token = token_ids[-1:]

    def _take_pending(self) -> tuple[Tensor, Tensor]:
        """Return and clear the pending tokens and features; without any, the last token again."""
        if not self._pending:
            self.cache.keep(self.cache.length - 1)
            return self._last
        ids, features = zip(*self._pending, strict=True)
        ids, features = (parts[0] if len(parts) == 1 else torch.cat(parts) for parts in (ids, features))
        self._pending, self._last = [], (ids[-1:], features[-1:])
        return ids, features

    @torch.inference_mode()
    def propose(self, request: DraftRequest) -> Proposal:
        """Grow a tree; afterwards the cache holds exactly the committed tokens."""
        native_grow = kernels.current().tree_growth(self.head, request.tree) if self.grower is TreeGrower else None
        if native_grow is None:
            self.catch_up()
            num_committed = self.cache.length
            inputs = self._growth_inputs(num_committed, request)
            proposal = self.grower(self.head, self.cache, self._root, self._root_token, inputs).grow()
        else:
            pending = self._take_pending()
            num_committed = self.cache.length + pending[0].shape[0]
            inputs = self._growth_inputs(num_committed, request)
            proposal = native_grow(self.head, self.cache, pending, inputs)
        self.cache.keep(num_committed)
        return proposal

    def _growth_inputs(self, num_committed: int, request: DraftRequest) -> GrowthInputs:
        """Return the inputs of a tree after so many committed tokens, and reserve its rows in the cache."""
        tree = request.tree
        num_drafted = max(tree.depth * tree.width, tree.nodes, self.head.drafted_rows)
        self._reserve(num_committed - self.cache.length + num_drafted)
        noise = self._ranking_noise(num_committed, request)
        return GrowthInputs(self.sampling, tree, noise, request.chain, self.evidence, self._explored(tree))

    def _ranking_noise(self, num_committed: int, request: DraftRequest) -> Tensor | None:
        """Return the addends of log probabilities for ranking candidates, (depth, draft vocabulary), or None.

        It is the target's noise at the positions after the root: row t of the head's cache belongs to token
        t + skipped_tokens of the text, and the root is the last row. The root's row includes the request's draft bias.
        """
        tree, noise = request.tree, None
        if tree.shared_noise and not self.sampling.greedy:
            noise = self.noise_rows.rows(num_committed + self.head.skipped_tokens, tree.depth)
        if request.draft_bias is None or tree.root_only:
            return noise
        return self._add_draft_bias(noise, request.draft_bias(), tree.depth)

    def _add_draft_bias(self, noise: Tensor | None, bias: Tensor, depth: int) -> Tensor:
        vocabulary = self.head.draft_token_ids
        noise = bias.new_zeros((depth, len(vocabulary))) if noise is None else noise.clone()
        noise[0] += bias[vocabulary] / (self.sampling.temperature or 1.0)
        return noise

    def _explored(self, tree: TreeConfig) -> int | None:
        """Return `GrowthInputs.explored`.

        On a GPU all nodes are expanded: reading scores on the host would cost more than the rows that it saves.
        """
        return tree.nodes if reads_are_free(self.device) else None

    def _reserve(self, rows: int) -> None:
        """Grow the cache if fewer than `rows` positions are free."""
        needed = self.cache.length + rows
        if needed > self.cache.capacity:
            smaller, self.cache = self.cache, self.head.new_cache(2 * needed)
            self.cache.load_prefix(smaller.first(smaller.length))


def head_method(drafter: Callable[[DraftHead, dict | None], HeadDrafter], needs: Needs = LAYERS, **fields) -> Method:
    """Return a method that drafts with a suitable head, up to the length that the head was trained for."""

    def load(resources: Resources) -> HeadDrafter:
        head, info = resources.head_for(needs)
        head.attach(resources.target)
        loaded, positions = drafter(head, info), head.config.max_position_embeddings
        if positions < resources.target.max_positions:
            loaded.max_positions = positions
        return loaded

    return Method(needs=needs, load=load, drafter=drafter, **fields)
