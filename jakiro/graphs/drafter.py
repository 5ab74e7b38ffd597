"""Drafting at fixed addresses: one captured pass reads the newly committed tokens and grows the whole tree.

The same head and calibration as in `jakiro/methods/`, and the same trees; only lengths, noise and temperature lie on
the device. The prompt's pass, as long as the prompt, stays outside of graphs. What only people see of a tree, its
evidence, is a pass of its own that follows the target's.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import NoiseSource
from jakiro.core.sampling import DeviceSampling
from jakiro.drafting.base import (
    Committed,
    Drafter,
    DraftSession,
    HeadEvidence,
    NeededPasses,
    Prompt,
    Proposal,
    TreeLimits,
)
from jakiro.drafting.candidates import Candidates, Chain, best_tree, forecast
from jakiro.graphs.cache import StaticCache, columns_for
from jakiro.graphs.capture import GraphedPass, PassBook
from jakiro.graphs.growing import PENDING_ROWS, FixedGrower, Grown, TreeForm
from jakiro.graphs.head import FusedHead
from jakiro.graphs.tree import MAX_LEVELS, StaticTree
from jakiro.heads.layer_head import LayerHead
from jakiro.target.model import TargetModel


class DraftBuffers:
    """What a slot shares with its heads.

    Attributes:
        target: whose passes read the trees. room_rows: committed and drafted rows that a head has to hold at most.
        draft_rows: of those, drafted ones.
        tree: where trees are written.
        noise: (positions, vocab_size) float32, the target's noise from the position after the root on.
        temperature: () float32.
        chain_ids, chain_log_estimates: (MAX_CHAIN,), padded with −1 and −inf.
        smallest_columns: of attention, see `columns_for`.
        passes: where passes are kept.
    """

    target: TargetModel
    room_rows: int
    draft_rows: int
    tree: StaticTree
    noise: Tensor
    temperature: Tensor
    chain_ids: Tensor
    chain_log_estimates: Tensor
    smallest_columns: int
    passes: PassBook


class StaticHeadDrafter(Drafter):
    """A head with the buffers of one answer at a time; `start` begins the next one.

    Args:
        head: bound to its target.
        evidence: computes that of its trees; `like`: the drafter with the same head whose proposers and names it takes.
    """

    def __init__(self, head: LayerHead, evidence: HeadEvidence, like: Drafter, around: DraftBuffers) -> None:
        self.proposers, self.evidence, self.info = like.proposers, like.evidence, like.info
        self.head, self.around, self._evidence_of = head, around, evidence
        device, dtype = head.output_weight.device, head.output_weight.dtype
        self.device, self.dtype = device, dtype
        largest = columns_for(PENDING_ROWS + around.room_rows, around.smallest_columns)
        self.cache = StaticCache(head.cache_shape, largest, dtype, device)
        self.pending_ids = torch.zeros(PENDING_ROWS, dtype=torch.int64, device=device)
        self.pending_features = torch.zeros((PENDING_ROWS, head.config.feature_size), dtype=dtype, device=device)
        self.count = torch.ones((), dtype=torch.int64, device=device)
        self.fused = FusedHead(head, self.cache, PENDING_ROWS + around.draft_rows)
        # Of the nodes of the last tree: rows that passes left for the evidence
        self.chosen_rows = torch.zeros(around.tree.rows, dtype=torch.int64, device=device)
        self.shapes: dict[tuple, tuple[int, int, tuple[int, int]]] = {}
        self._forms: dict[tuple[TreeConfig, int], TreeForm] = {}

    def start(self, prompt: Prompt, sampling: SamplingParams, noise: NoiseSource) -> "StaticHeadSession":
        return StaticHeadSession(self, sampling, prompt.ids[1:], prompt.features)

    @property
    def buffers(self) -> list[Tensor]:
        own = [each for each in vars(self).values() if isinstance(each, Tensor)]
        forms = [each for form in self._forms.values() for each in vars(form).values() if isinstance(each, Tensor)]
        return [*own, *self.fused.buffers, *forms, self.cache.store]

    def columns(self, length: int, config: TreeConfig) -> int:
        """Columns that a tree after `length` rows attends to, the pending ones not counted in."""
        return columns_for(length + PENDING_ROWS + config.depth * config.width, self.around.smallest_columns)

    def growing(
        self, config: TreeConfig, greedy: bool, chained: bool, sizes: tuple[int, ...], columns: int
    ) -> GraphedPass:
        """The pass that grows such a tree."""
        return self.around.passes.get(self.grow, config, greedy, chained, sizes, columns)

    def filling(self, rows: int) -> GraphedPass:
        """The pass that fills in the evidence of so many rows."""
        return self.around.passes.get(self.fill_evidence, rows)

    def passes(self, needed: NeededPasses) -> Iterator[GraphedPass]:
        for config in needed.trees:
            columns, most = self.columns(needed.first, config), self.columns(needed.last, config)
            while columns <= most:
                # Made of numbers on the host, so not in a step
                self._form(config, columns)
                yield self.growing(config, needed.greedy, needed.chained, needed.sizes, columns)
                columns *= 2
        if self.evidence:
            for rows in sorted({self.around.target.row_bucket(config.nodes) for config in needed.trees}):
                yield self.filling(rows)

    def grow(self, config: TreeConfig, greedy: bool, chained: bool, sizes: tuple[int, ...], columns: int) -> None:
        """Pass: reads the pending rows, grows a tree after them and writes it where the target's pass reads it."""
        head, around = self.head, self.around
        noise = None
        if config.shared_noise and not greedy:
            noise = around.noise[: config.depth]
            noise = noise if head.config.draft_vocab_size is None else noise.index_select(1, head.draft_token_ids)
        form = self._form(config, columns)
        sampling = DeviceSampling(greedy, around.temperature)
        grown = FixedGrower(self.fused, self.cache, form, sampling, noise).grow(
            self.pending_ids, self.pending_features, self.count
        )
        copied, max_depth, nodes = None, config.depth, form.nodes
        if chained:
            chain = Chain(around.chain_ids, around.chain_log_estimates, len(self.proposers))
            candidates, max_depth = grown.candidates(form).merged_with(chain), max(max_depth, len(chain.token_ids))
            copied, scores, depths = candidates.by(chain.proposer), candidates.scores, candidates.depths
            tree = best_tree(grown.token_ids[:1], candidates, nodes - 1, max_depth, self._remember)
            around.tree.write(tree, around.target.row_bucket(nodes), ())
        else:
            scores, depths = grown.values[0, 1:], form.columns[0, 1:]
            self._write(grown, form)
        forecast_shape = (0, 0)
        if sizes:
            expected = forecast(scores, depths, config.depth, sizes, copied)
            forecast_shape = tuple(expected.shape)
            around.tree.forecast[: forecast_shape[0], : forecast_shape[1]].copy_(expected)
        self.shapes[config, greedy, chained, sizes] = (nodes, max_depth, forecast_shape)

    def fill_evidence(self, rows: int) -> None:
        """Pass: the evidence of the tree that was grown last, and who proposed its nodes."""
        tree = self.around.tree
        tree.write_evidence(*self._evidence_of([self.fused.left], tree.candidates(self.chosen_rows[1:rows])))

    def _form(self, config: TreeConfig, columns: int) -> TreeForm:
        if (config, columns) not in self._forms:
            self._forms[config, columns] = TreeForm(self.fused, config, columns)
        return self._forms[config, columns]

    def _write(self, grown: Grown, form: TreeForm) -> None:
        """Writes the best candidates as `best_tree` chooses them, and which rows they came from."""
        tree, nodes = self.around.tree, form.nodes
        kept = grown.values[0].sort(descending=True, stable=True).indices[:nodes].sort().values
        blocks = form.blocks.index_select(0, kept)
        torch.index_select(grown.values, 1, kept, out=tree.values[:, :nodes])
        torch.index_select(form.columns, 1, kept, out=tree.numbers[2:, :nodes])
        torch.index_select(grown.token_ids, 0, kept, out=tree.numbers[0, :nodes])
        if grown.proposers is not None:
            torch.index_select(grown.proposers, 0, kept, out=tree.numbers[4, :nodes])
        parents = grown.parents.index_select(0, blocks)
        torch.searchsorted(kept, parents[1:], out=tree.numbers[1, 1:nodes])
        torch.index_select(grown.rows, 0, blocks, out=self.chosen_rows[:nodes])
        tree.pad(nodes, self.around.target.row_bucket(nodes))

    def _remember(self, chosen: Candidates) -> tuple[dict[str, Tensor], Tensor]:
        """Keeps what the evidence is computed from later."""
        self.chosen_rows[1 : 1 + chosen.count].copy_(chosen.rows)
        return {}, chosen.proposers


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
        self.rows.keep(length - 1)

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
        drafter = self.drafter
        if self._prompt is not None:
            self._read_prompt()
        columns = drafter.columns(self.rows.length, limits.tree)
        drafter.cache.length.fill_(self.rows.length)
        drafter.count.fill_(self._count)
        key = (shape_of(limits.tree), self._greedy, limits.chain is not None, limits.sizes)
        drafter.growing(*key, columns)()
        self.rows.extend(self._count)
        self._count = 0
        nodes, max_depth, (levels, sizes) = drafter.shapes[key]
        around = drafter.around
        fill = drafter.filling(around.target.row_bucket(nodes)) if drafter.evidence else None
        tree = around.tree.first(nodes, max_depth, drafter.evidence)
        return Proposal(tree, around.tree.forecast[:levels, :sizes], fill_evidence=fill)

    def _read_prompt(self) -> None:
        (ids, features), self._prompt = self._prompt, None
        if ids.shape[0]:
            self.drafter.head.read(ids, features.to(self.drafter.dtype), self.rows)

    def _read_aside(self) -> None:
        """Reads everything pending outside of graphs, so that there is room for more."""
        if self._prompt is not None:
            self._read_prompt()
        drafter, count = self.drafter, self._count
        drafter.head.read(drafter.pending_ids[:count], drafter.pending_features[:count], self.rows)
        self._count = 0


def tree_shapes(tree: TreeConfig, sizes: tuple[int, ...]) -> tuple[TreeConfig, ...]:
    """The trees that an answer under this config may ask for; `sizes` are those a tree chooses from."""
    shape = shape_of(tree)
    if tree.policy != "auto" or not sizes:
        return (shape,)
    levels = range(1, min(tree.depth, MAX_LEVELS) + 1)
    return tuple(replace(shape, depth=depth, nodes=nodes) for depth in levels for nodes in sizes if nodes > depth)


def shape_of(tree: TreeConfig) -> TreeConfig:
    """What growing a tree depends on: equal ones are one captured pass, whoever chose the size or adds a chain."""
    return replace(tree, policy="fixed", context=False)
