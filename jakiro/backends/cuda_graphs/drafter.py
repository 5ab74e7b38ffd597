"""Drafting at fixed addresses: one captured pass reads the newly committed tokens and grows the whole tree.

The pass is the head's reading and the grower, as everywhere; only lengths, noise and temperature lie on the device.
The prompt's pass, as long as the prompt, stays outside of graphs.
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
from jakiro.drafters.base import Committed, Context, Drafter, DraftSession, Proposal, TreeLimits
from jakiro.drafters.candidates import MAX_CHAIN, Chain
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.limited import limited
from jakiro.heads.layers import HeadOutput
from jakiro.models.target import TargetModel

# Committed rows that one pass takes in; several root-only steps may leave more, which are read aside.
PENDING_ROWS = 32


class DraftBuffers:
    """What a slot shares with its heads.

    Args:
        rows: committed and drafted rows that a head has to hold at most. nodes: of the largest tree, pads included.

    Attributes:
        tree: where trees are written.
        noise: (positions, vocab_size) float32, the target's noise from the position after the root on.
        temperature: () float32.
        passes: where passes are kept.
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
        """The chain, written where captured passes read it."""
        length = len(token_ids)
        self._staged_ids.fill_(-1)
        self._staged_estimates.fill_(-torch.inf)
        self._staged_ids[:length] = torch.tensor(token_ids, device="cpu")
        self._staged_estimates[:length] = torch.tensor(log_estimates, device="cpu")
        self.chain_ids.copy_(self._staged_ids, non_blocking=True)
        self.chain_log_estimates.copy_(self._staged_estimates, non_blocking=True)
        return Chain(self.chain_ids[:length], self.chain_log_estimates[:length], proposer)


class StaticHeadDrafter(Drafter):
    """A head with the buffers of one answer at a time; `start` begins the next one.

    Args:
        like: the drafter whose head, grower, proposers and names it takes.
    """

    def __init__(self, like: HeadDrafter, around: DraftBuffers) -> None:
        self.proposers, self.evidence, self.info = like.proposers, like.evidence, like.info
        self.head, self.around, self.grower, self.node_evidence = like.head, around, like.grower, like.node_evidence
        head, self.max_positions = like.head, like.max_positions
        device, self.dtype = head.output_weight.device, head.output_weight.dtype
        self.cache = StaticCache(head.cache_shape, PENDING_ROWS + around.draft_rows, self.dtype, device)
        self.pending_ids = torch.zeros(PENDING_ROWS, dtype=torch.int64, device=device)
        self.pending_features = torch.zeros((PENDING_ROWS, head.config.feature_size), dtype=self.dtype, device=device)
        self.count = torch.ones((), dtype=torch.int64, device=device)
        # Nodes and levels of the trees that passes grow
        self.shapes: dict[tuple, tuple[int, int]] = {}

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> DraftSession:
        ids = prompt.ids[self.head.skipped_tokens :]
        return limited(partial(StaticHeadSession, self, sampling, ids, prompt.features), self.max_positions, prompt)

    @property
    def buffers(self) -> list[Tensor]:
        return [self.pending_ids, self.pending_features, self.count, self.cache.store]

    def passes(self, tree: TreeConfig, greedy: bool, chained: bool = False) -> Iterator[GraphedPass]:
        yield self.around.passes.get(self.grow, _shape_of(tree), greedy, chained)

    def grow(self, config: TreeConfig, greedy: bool, chained: bool) -> None:
        """Pass: reads the pending rows, grows a tree after them and writes it where the target's pass reads it."""
        head, around, end = self.head, self.around, self.count[None] - 1
        read = head.extend(self.pending_ids, self.pending_features, self.cache.following())
        root = HeadOutput(*(None if part is None else part.index_select(-2, end) for part in read))
        noise = None
        if config.shared_noise and not greedy:
            noise = around.noise[: config.depth]
            noise = noise if head.config.draft_vocab_size is None else noise.index_select(1, head.draft_token_ids)
        chain = Chain(around.chain_ids, around.chain_log_estimates, len(self.proposers)) if chained else None
        root_token, sampling = self.pending_ids.index_select(0, end), DeviceSampling(greedy, around.temperature)
        drafted = self.cache.following(self.count)
        grower = self.grower(head, drafted, root, root_token, sampling, config, noise, chain, self.node_evidence)
        tree = grower.grow().tree
        around.tree.write(tree, around.target.row_bucket(tree.num_nodes), self.evidence)
        self.shapes[config, greedy, chained] = tree.num_nodes, tree.max_depth


class StaticHeadSession(DraftSession):
    """Drafting for one answer on a drafter's buffers.

    Args:
        ids, features: the prompt's, ids one ahead; read with the first tree.
    """

    def __init__(self, drafter: StaticHeadDrafter, sampling: SamplingParams, ids: Tensor, features: Tensor) -> None:
        self.drafter, self.rows, self._greedy = drafter, drafter.cache.rows, sampling.greedy
        self.rows.keep(0)
        self._prompt: tuple[Tensor, Tensor] | None = (ids[:-1], features[:-1])
        self._count = 0
        self._take(ids[-1:], features[-1:])

    def observe(self, committed: Committed) -> None:
        self._take(committed.ids, committed.features)

    def rewind(self, length: int) -> None:
        self._count = 0
        self.rows.keep(length - self.drafter.head.skipped_tokens)

    @torch.inference_mode()
    def _take(self, committed_ids: Tensor, features: Tensor) -> None:
        count = committed_ids.shape[0]
        if self._count + count > PENDING_ROWS:
            self._read_aside()
        drafter = self.drafter
        drafter.pending_ids[self._count : self._count + count].copy_(committed_ids)
        drafter.pending_features[self._count : self._count + count].copy_(features)
        self._count += count

    @torch.inference_mode()
    def propose(self, limits: TreeLimits) -> Proposal:
        """Grows a tree where the target's pass reads it; a chain is taken from the slot's buffers."""
        drafter, tree = self.drafter, self.drafter.around.tree
        self._read_prompt()
        drafter.cache.length.fill_(self.rows.length)
        drafter.count.fill_(self._count)
        key = (_shape_of(limits.tree), self._greedy, limits.chain is not None)
        drafter.around.passes.get(drafter.grow, *key)()
        self.rows.extend(self._count)
        self._count = 0
        return Proposal(tree.first(*drafter.shapes[key], drafter.evidence))

    def _read_prompt(self) -> None:
        if self._prompt is not None:
            (ids, features), self._prompt = self._prompt, None
            if ids.shape[0]:
                self.drafter.head.extend(ids, features.to(self.drafter.dtype), self.rows)

    def _read_aside(self) -> None:
        """Reads everything pending outside of graphs, so that there is room for more."""
        self._read_prompt()
        drafter, count = self.drafter, self._count
        drafter.head.extend(drafter.pending_ids[:count], drafter.pending_features[:count], self.rows)
        self._count = 0


def _shape_of(tree: TreeConfig) -> TreeConfig:
    """What growing a tree depends on: equal ones are one captured pass, whoever chose the size."""
    return replace(tree, policy="fixed")
