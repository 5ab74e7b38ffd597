"""Drafting at fixed addresses: one captured pass reads the newly committed tokens and grows the whole tree.

The same head, grower and calibration as in `drafting.py`; only lengths, noise and temperature lie on the device. The
prompt's pass, as long as the prompt, stays outside of graphs.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.sampling import DeviceSampling
from jakiro.core.tree import DraftTree
from jakiro.drafting.candidates import Chain
from jakiro.drafting.growing import TreeGrower
from jakiro.graphs.cache import columns_for
from jakiro.graphs.capture import GraphedPass, PassBook
from jakiro.graphs.head_cache import StaticHeadCache
from jakiro.graphs.tree import MAX_LEVELS, StaticTree
from jakiro.heads.jakiro import JakiroHead
from jakiro.heads.layers import HeadOutput
from jakiro.target.llama import MASKED_KERNELS

# Committed rows that one pass takes in; several root-only steps may leave more, which are read aside.
PENDING_ROWS = 32


@dataclass(frozen=True, slots=True)
class DraftSurroundings:
    """What a lane shares with its head.

    Attributes:
        tree: where trees are written.
        noise: (positions, vocab_size) float32, the target's noise from the position behind the root on.
        temperature: () float32.
        chain_ids, chain_log_estimates: (MAX_CHAIN,), padded with −1 and −inf.
        row_bucket: rows that a target pass over so many nodes has.
        smallest_columns: of attention, see `columns_for`.
    """

    tree: StaticTree
    noise: Tensor
    temperature: Tensor
    chain_ids: Tensor
    chain_log_estimates: Tensor
    row_bucket: Callable[[int], int]
    smallest_columns: int


class StaticHeadDrafter:
    """A head with the buffers of one answer at a time; `start` begins the next one.

    Args:
        head: bound to its target.
        capacity: committed rows at most; draft_rows: levels × width at most.
    """

    def __init__(
        self, head: JakiroHead, around: DraftSurroundings, passes: PassBook, capacity: int, draft_rows: int
    ) -> None:
        self.head, self.around, self.passes = head, around, passes
        device, dtype = head.output_weight.device, head.output_weight.dtype
        self.device, self.dtype = device, dtype
        largest = columns_for(capacity + PENDING_ROWS + draft_rows, around.smallest_columns)
        self.cache = StaticHeadCache(head.config, largest, device, dtype)
        self.pending_ids = torch.zeros(PENDING_ROWS, dtype=torch.int64, device=device)
        self.pending_features = torch.zeros((PENDING_ROWS, head.config.feature_size), dtype=dtype, device=device)
        self.length = torch.zeros((), dtype=torch.int64, device=device)
        self.count = torch.ones((), dtype=torch.int64, device=device)
        self.shapes: dict[tuple, tuple[int, int, tuple[int, int], int]] = {}
        self._places: dict[tuple[int, ...], Tensor | None] = {(): None}
        reduced = head.config.draft_vocab_size is not None
        self._noise_columns = head.draft_token_ids if reduced else None

    def start(self, ids: Tensor, features: Tensor, sampling: SamplingParams, noise: KeyedNoise) -> "StaticHeadSession":
        return StaticHeadSession(self, sampling, ids[1:], features)

    def rows(self, first: Tensor, count: int) -> Tensor:
        """(count, draft vocabulary) noise from the position behind the root on, as `NoiseRows.rows`."""
        noise = self.around.noise[:count]
        return noise if self._noise_columns is None else noise.index_select(1, self._noise_columns)

    def columns(self, length: int, config: TreeConfig) -> int:
        """Columns that a tree behind `length` rows attends to, the pending ones not counted in."""
        return columns_for(length + PENDING_ROWS + config.depth * config.width, self.around.smallest_columns)

    def reads(
        self, config: TreeConfig, greedy: bool, chained: bool, buckets: tuple[int, ...], columns: int
    ) -> GraphedPass:
        """The pass that grows such a tree."""
        if buckets not in self._places:
            self._places[buckets] = torch.tensor([nodes - 2 for nodes in buckets], device=self.device)
        return self.passes.get(self.grow, config, greedy, chained, buckets, columns)

    def needed(
        self, configs: list[TreeConfig], greedy: bool, buckets: tuple[int, ...], first: int, last: int
    ) -> Iterator[GraphedPass]:
        """The passes that an answer may need whose committed rows go from `first` to `last`."""
        for config in configs:
            columns, most = self.columns(first, config), self.columns(last, config)
            while columns <= most:
                for chained in (False, True) if config.context else (False,):
                    yield self.reads(config, greedy, chained, buckets, columns)
                columns *= 2

    def grow(self, config: TreeConfig, greedy: bool, chained: bool, buckets: tuple[int, ...], columns: int) -> None:
        """Reads the pending rows, grows a tree behind them and writes it where the target's pass reads it."""
        with sdpa_kernel(MASKED_KERNELS) if self.device.type == "cuda" else nullcontext():
            self._grow(config, greedy, chained, buckets, columns)

    def _grow(self, config: TreeConfig, greedy: bool, chained: bool, buckets: tuple[int, ...], columns: int) -> None:
        head, around = self.head, self.around
        rows = self.cache.behind(self.length, columns)
        places = torch.arange(PENDING_ROWS, device=self.device)
        mask = rows.visible(places <= places[:, None])[None, None]
        embeddings = head.embed(self.pending_ids)
        output = head(embeddings[None], self.pending_features[None], (self.length + places)[None], mask, rows)
        last = self.count[None] - 1
        root = HeadOutput(*(None if part is None else part.index_select(part.dim() - 2, last) for part in output))
        chain = Chain(around.chain_ids, around.chain_log_estimates) if chained else None
        tree = TreeGrower(
            head,
            self.cache.behind(self.length + self.count, columns),
            root,
            self.pending_ids.index_select(0, last),
            DeviceSampling(greedy, around.temperature, 1.0, 0),
            config,
            head.config.calibration,
            self,
            self._places[buckets],
            chain,
        ).grow()
        around.tree.write(tree, around.row_bucket(tree.num_nodes))
        shape = (tree.num_nodes, tree.router_weights.shape[1], tuple(tree.expected.shape), tree.max_depth)
        self.shapes[config, greedy, chained, buckets] = shape


class StaticHeadSession:
    """Drafting for one answer on a drafter's buffers.

    Args:
        ids, features: the prompt's, ids one ahead; read with the first tree.
    """

    def __init__(self, drafter: StaticHeadDrafter, sampling: SamplingParams, ids: Tensor, features: Tensor) -> None:
        self.drafter, self.cache, self._greedy = drafter, drafter.cache, sampling.greedy
        self.cache.cut(0)
        self.buckets: tuple[int, ...] = ()
        self._prompt: tuple[Tensor, Tensor] | None = (ids[:-1], features[:-1])
        self._count = 0
        self.extend(ids[-1:], features[-1:])

    @torch.inference_mode()
    def extend(self, committed_ids: Tensor, features: Tensor) -> None:
        count = committed_ids.shape[0]
        if self._count + count > PENDING_ROWS:
            self._read_aside()
        drafter = self.drafter
        drafter.pending_ids[self._count : self._count + count].copy_(committed_ids)
        drafter.pending_features[self._count : self._count + count].copy_(features)
        self._count += count

    @torch.inference_mode()
    def propose(self, tree_config: TreeConfig, chain: Chain | None = None) -> DraftTree:
        """Grows a tree where the target's pass reads it; a chain is taken from the lane's buffers."""
        drafter = self.drafter
        if self._prompt is not None:
            self._read_prompt()
        columns = drafter.columns(self.cache.length, tree_config)
        drafter.length.fill_(self.cache.length)
        drafter.count.fill_(self._count)
        key = (tree_config, self._greedy, chain is not None, self.buckets)
        drafter.reads(*key, columns)()
        self.cache.cut(self.cache.length + self._count)
        self._count = 0
        return drafter.around.tree.shown(*drafter.shapes[key])

    def _read_prompt(self) -> None:
        (ids, features), self._prompt = self._prompt, None
        if ids.shape[0]:
            self._read(ids, features)

    def _read_aside(self) -> None:
        """Reads everything pending outside of graphs, so that there is room for more."""
        if self._prompt is not None:
            self._read_prompt()
        self._read(self.drafter.pending_ids[: self._count], self.drafter.pending_features[: self._count])
        self._count = 0

    def _read(self, ids: Tensor, features: Tensor) -> None:
        head, start, count = self.drafter.head, self.cache.length, ids.shape[0]
        positions = torch.arange(start, start + count, device=self.drafter.device)
        mask = self.cache.visible_in_turn(count) if start > 0 else None
        features = features.to(self.drafter.dtype)
        head(head.embed(ids)[None], features[None], positions[None], mask, self.cache)


def tree_shapes(tree: TreeConfig, buckets: tuple[int, ...]) -> list[TreeConfig]:
    """The trees that an answer under this config may ask for; `buckets` are the sizes a tree chooses from."""
    if tree.policy != "auto" or not buckets:
        return [tree]
    levels = range(1, min(tree.depth, MAX_LEVELS) + 1)
    return [replace(tree, depth=depth, nodes=nodes) for depth in levels for nodes in buckets if nodes > depth]
