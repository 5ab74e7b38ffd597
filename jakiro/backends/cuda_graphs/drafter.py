"""Drafting at fixed addresses: one captured pass reads the newly committed tokens and grows the whole tree.

It calls the head and the grower as elsewhere; only lengths, noise and temperature are stored on the device. The
prompt's pass, whose length varies, runs outside of graphs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from jakiro.backends.cuda_graphs.cache import StaticCache
from jakiro.backends.cuda_graphs.capture import GraphCache, GraphedPass, Graphs
from jakiro.backends.cuda_graphs.tree import MAX_LEVELS, StaticTree
from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import NoiseSource
from jakiro.core.sampling import DeviceSampling
from jakiro.drafters.base import Committed, Context, Drafter, DraftRequest, DraftSession, Proposal
from jakiro.drafters.candidates import MAX_CHAIN, Chain
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.limited import limited
from jakiro.drafters.merged import MergedDrafter
from jakiro.drafters.plain import PlainDrafter
from jakiro.drafters.tree_growth import GrowthInputs, TreeGrower
from jakiro.heads.layers import HeadOutput
from jakiro.models.target import TargetModel

# Committed rows that one pass reads; if plain steps leave more, they are read outside of graphs
PENDING_ROWS = 32


class DraftBuffers:
    """Buffers shared by the target's passes and the heads.

    Args:
        rows: maximum number of committed and drafted rows of a head.
        nodes: of the largest tree, including pads.

    Attributes:
        tree: buffers of the current tree.
        noise: (positions, vocab_size) float32, the target's noise from the position after the root on.
        temperature: () float32.
        passes: passes over these buffers.
    """

    def __init__(self, target: TargetModel, graphs: Graphs, rows: int, nodes: int) -> None:
        self.target, self.draft_rows, self.device = target, rows, target.device
        self.tree, self.passes = StaticTree(nodes, self.device), GraphCache(graphs)
        self.noise = torch.zeros((MAX_LEVELS + 1, target.vocab_size), device=self.device)
        self.temperature = torch.ones((), device=self.device)
        # Padded with −1 and −inf
        self.chain_ids = torch.full((MAX_CHAIN,), -1, dtype=torch.int64, device=self.device)
        self.chain_log_estimates = torch.full((MAX_CHAIN,), -torch.inf, device=self.device)
        pinned = {"device": "cpu", "pin_memory": self.device.type == "cuda"}
        self._staged_ids = torch.zeros(MAX_CHAIN, dtype=torch.int64, **pinned)
        self._staged_estimates = torch.zeros(MAX_CHAIN, **pinned)

    def chain(self, token_ids: Sequence[int], log_estimates: Sequence[float], proposer: int) -> Chain:
        """Write a chain into the buffers that captured passes read, and return it."""
        length = len(token_ids)
        self._staged_ids.fill_(-1)
        self._staged_estimates.fill_(-torch.inf)
        self._staged_ids[:length] = torch.tensor(token_ids, device="cpu")
        self._staged_estimates[:length] = torch.tensor(log_estimates, device="cpu")
        self.chain_ids.copy_(self._staged_ids, non_blocking=True)
        self.chain_log_estimates.copy_(self._staged_estimates, non_blocking=True)
        return Chain(self.chain_ids[:length], self.chain_log_estimates[:length], proposer)


class StaticHeadDrafter(Drafter):
    """A head with buffers for one answer at a time; `start` begins the next answer.

    Args:
        drafter: source of head, grower, proposers and names.
    """

    def __init__(self, drafter: HeadDrafter, buffers: DraftBuffers) -> None:
        self.proposers, self.evidence, self.info = drafter.proposers, drafter.evidence, drafter.info
        self.head, self.grower, self.node_evidence = drafter.head, drafter.grower, drafter.node_evidence
        self.max_positions, self.draft_buffers = drafter.max_positions, buffers
        head = drafter.head
        device, self.dtype = head.output_weight.device, head.output_weight.dtype
        self.cache = StaticCache(head.cache_shape, PENDING_ROWS + buffers.draft_rows, self.dtype, device)
        self.pending_ids = torch.zeros(PENDING_ROWS, dtype=torch.int64, device=device)
        self.pending_features = torch.zeros((PENDING_ROWS, head.config.feature_size), dtype=self.dtype, device=device)
        self.count = torch.ones((), dtype=torch.int64, device=device)
        # Nodes and levels of the trees that each pass grows
        self.shapes: dict[tuple, tuple[int, int]] = {}

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> DraftSession:
        ids = prompt.ids[self.head.skipped_tokens :]
        return limited(partial(StaticHeadSession, self, sampling, ids, prompt.features), self.max_positions, prompt)

    @property
    def buffers(self) -> list[Tensor]:
        return [self.pending_ids, self.pending_features, self.count, self.cache.store]

    def grow(self, config: TreeConfig, greedy: bool, chained: bool) -> None:
        """Pass: read the pending rows, grow a tree after them and write it where the target's pass reads it."""
        head, buffers, end = self.head, self.draft_buffers, self.count[None] - 1
        read = head.extend(self.pending_ids, self.pending_features, self.cache.following())
        root = HeadOutput(*(None if part is None else part.index_select(-2, end) for part in read))
        noise = None
        if config.shared_noise and not greedy:
            noise = buffers.noise[: config.depth]
            noise = noise if head.config.draft_vocab_size is None else noise.index_select(1, head.draft_token_ids)
        chain = Chain(buffers.chain_ids, buffers.chain_log_estimates, len(self.proposers)) if chained else None
        root_token, sampling = self.pending_ids.index_select(0, end), DeviceSampling(greedy, buffers.temperature)
        drafted = self.cache.following(self.count)
        inputs = GrowthInputs(sampling, config, noise, chain, self.node_evidence)
        tree = self.grower(head, drafted, root, root_token, inputs).grow().tree
        buffers.tree.write(tree, buffers.target.row_bucket(tree.num_nodes), self.evidence)
        self.shapes[config, greedy, chained] = tree.num_nodes, tree.max_depth


class StaticHeadSession(DraftSession):
    """Drafting for one answer in a drafter's buffers.

    Args:
        ids: (n,) int64, tokens of the prompt from the second on, and the first token; read with the first tree.
        features: (n, feature_size), the target's, one position before each.
    """

    def __init__(self, drafter: StaticHeadDrafter, sampling: SamplingParams, ids: Tensor, features: Tensor) -> None:
        self.drafter, self.rows, self._greedy = drafter, drafter.cache.rows, sampling.greedy
        self.rows.keep(0)
        self._prompt: tuple[Tensor, Tensor] | None = (ids[:-1], features[:-1])
        self._count = 0
        self._take(ids[-1:], features[-1:])

    def observe(self, committed: Committed) -> None:
        self._take(committed.ids, committed.features)

    @property
    def num_tokens(self) -> int:
        num_prompt_rows = 0 if self._prompt is None else self._prompt[0].shape[0]
        return self.drafter.head.skipped_tokens + num_prompt_rows + self.rows.length + self._count

    def rewind(self, length: int) -> None:
        self._count = 0
        self.rows.keep(length - self.drafter.head.skipped_tokens)

    @torch.inference_mode()
    def _take(self, committed_ids: Tensor, features: Tensor) -> None:
        count = committed_ids.shape[0]
        if self._count + count > PENDING_ROWS:
            self._read_pending()
        drafter = self.drafter
        drafter.pending_ids[self._count : self._count + count].copy_(committed_ids)
        drafter.pending_features[self._count : self._count + count].copy_(features)
        self._count += count

    @torch.inference_mode()
    def propose(self, request: DraftRequest) -> Proposal:
        """Grow a tree where the target's pass reads it; a chain is read from the buffers."""
        drafter, buffers = self.drafter, self.drafter.draft_buffers
        self._read_prompt()
        drafter.cache.length.fill_(self.rows.length)
        drafter.count.fill_(self._count)
        key = (_shape_of(request.tree), self._greedy, request.chain is not None)
        buffers.passes.get(drafter.grow, *key)()
        self.rows.extend(self._count)
        self._count = 0
        return Proposal(buffers.tree.first(*drafter.shapes[key], drafter.evidence))

    def _read_prompt(self) -> None:
        if self._prompt is not None:
            (ids, features), self._prompt = self._prompt, None
            if ids.shape[0]:
                self.drafter.head.extend(ids, features.to(self.drafter.dtype), self.rows)

    def _read_pending(self) -> None:
        """Read all pending rows outside of graphs, so that more rows fit."""
        self._read_prompt()
        drafter, count = self.drafter, self._count
        drafter.head.extend(drafter.pending_ids[:count], drafter.pending_features[:count], self.rows)
        self._count = 0


def _shape_of(tree: TreeConfig) -> TreeConfig:
    """Return the part of a config on which growing depends: equal parts share one captured pass."""
    return replace(tree, policy="fixed")


def static_form(drafter: Drafter, buffers: DraftBuffers) -> Drafter | None:
    """Return a drafter whose passes run in these buffers, or None if the drafter has no such form.

    Drafters with the same head share its buffers.
    """
    if isinstance(drafter, PlainDrafter):
        return drafter
    if isinstance(drafter, MergedDrafter):
        first = static_form(drafter.first, buffers)
        return None if first is None else MergedDrafter(first, drafter.second, buffers.chain)
    if not isinstance(drafter, HeadDrafter) or not drafter.head.capturable:
        return None
    # Other growers run eagerly, next to captured passes of the target
    return buffers.head_drafter(drafter) if drafter.captured or drafter.grower is TreeGrower else None


def draft_passes(drafter: Drafter, tree: TreeConfig, greedy: bool, chained: bool = False) -> Iterator[GraphedPass]:
    """Yield the passes that a request for such trees may need of a drafter of `static_form`."""
    if isinstance(drafter, MergedDrafter):
        yield from draft_passes(drafter.first, tree, greedy)
        yield from draft_passes(drafter.first, tree, greedy, chained=True)
    elif isinstance(drafter, StaticHeadDrafter):
        yield drafter.draft_buffers.passes.get(drafter.grow, _shape_of(tree), greedy, chained)
