"""Buffers at fixed addresses for one answer at a time, and every pass over them as a unit that can be captured.

The passes call the same functions as `TorchSession`. Only shapes are padded to row buckets and column steps, and
lengths, seed and temperature are stored on the device. A `GraphPool` keeps the buffers; an answer borrows them.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from jakiro.backends.cuda_graphs.cache import SMALLEST_COLUMNS, StaticCache, columns_for
from jakiro.backends.cuda_graphs.capture import GraphedPass, Graphs
from jakiro.backends.cuda_graphs.drafter import DraftBuffers, StaticHeadDrafter, draft_passes, static_form
from jakiro.backends.cuda_graphs.tree import MAX_LEVELS, EvidenceSchema
from jakiro.backends.outcome import pack, packed_size, unpack
from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.logits_processors import (
    LogitsProcessorList,
    PenaltyState,
    drafted_path,
    has_penalties,
    needs_host_processors,
)
from jakiro.core.noise import KeyedNoise
from jakiro.core.sampling import DeviceSampling, prefix_for
from jakiro.core.tree import DraftTree
from jakiro.core.verify import Outcome, verify
from jakiro.drafters.base import Drafter
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.drafters.head import HeadDrafter
from jakiro.heads.base import DraftHead
from jakiro.models.passes import TREE_ROWS
from jakiro.models.target import TargetModel

# Of the largest tree, and levels × width of the widest draft
MOST_NODES, MOST_DRAFT_ROWS = TREE_ROWS, 256
HOST_LOOKS = "The host looks at each tree before the target chooses, so nothing is drafted ahead."
# Assumed tokens of a drafted step, before any was measured
TOKENS_PER_STEP = 3.5


class VerifyModes(NamedTuple):
    """Choices of `verify_rows` that a captured pass cannot change; the numbers themselves are on the device.

    Attributes:
        has_penalties: whether biases or penalties change the logits.
        greedy: whether the largest logit is chosen.
        has_top_p, has_top_k, has_min_p: whether they drop tokens.
        prefix_length: number of sorted logits, see `warp`.
    """

    has_penalties: bool
    greedy: bool
    has_top_p: bool
    has_top_k: bool
    has_min_p: bool
    prefix_length: int


class GraphBuffers(DraftBuffers):
    """State of one answer at fixed addresses; `jakiro.core.backend.BackendSession` documents the methods.

    A drafter with a form at fixed addresses drafts in these buffers; any other drafter runs as it is.

    Args:
        target: with `fused` layers and passes in row buckets.
        tokens: maximum of prompt and completion together.
        smallest_columns: of attention, see `columns_for`.
    """

    @torch.inference_mode()
    def __init__(
        self, target: TargetModel, graphs: Graphs, tokens: int, smallest_columns: int = SMALLEST_COLUMNS
    ) -> None:
        widest = target.row_bucket(MOST_NODES)
        super().__init__(target, graphs, tokens + MOST_DRAFT_ROWS, widest)
        self.smallest_columns, device = smallest_columns, self.device
        columns = columns_for(tokens + widest, smallest_columns)
        self.cache = StaticCache(target.fused.cache_shape, columns, target.cache_dtype, device)
        self.rows = self.cache.rows
        self.features = torch.zeros((widest, target.feature_size), dtype=target.dtype, device=device)
        logits_dtype = target.logits(self.features[:1, : target.hidden_size]).dtype
        self.scored = torch.zeros((widest, target.vocab_size), dtype=logits_dtype, device=device)
        self.mask = torch.zeros((widest, widest), dtype=torch.bool, device=device)
        self.choices = torch.zeros(widest, dtype=torch.int64, device=device)
        self.on_path = torch.zeros(widest, dtype=torch.bool, device=device)
        self.end = torch.zeros((), dtype=torch.int64, device=device)
        self.root = torch.zeros(1, dtype=torch.int64, device=device)
        self.new_ids = torch.zeros(MAX_LEVELS + 1, dtype=torch.int64, device=device)
        self.new_features = torch.zeros((MAX_LEVELS + 1, target.feature_size), dtype=target.dtype, device=device)
        self.seed = torch.zeros((), dtype=torch.int64, device=device)
        self.top_p = torch.ones((), dtype=torch.float64, device=device)
        self.top_k = torch.ones((), dtype=torch.int64, device=device)
        self.log_min_p = torch.zeros((), device=device)
        self.vocabulary = torch.arange(target.vocab_size, device=device)
        self.penalties = PenaltyState.empty(target.vocab_size, device)
        self.processors: LogitsProcessorList | None = None
        # Source of a step's one device-to-host copy, by the evidence of its trees
        self._packed: dict[EvidenceSchema, Tensor] = {}
        self._heads: dict[DraftHead, StaticHeadDrafter] = {}
        self._static_drafters: dict[Drafter, Drafter | None] = {}
        self.served: set[Drafter] = set()
        self.drafter: Drafter | None = None

    @property
    def can_draft_ahead(self) -> bool:
        return self.device.type == "cuda" and self._has_static_drafter and not self._needs_host

    @property
    def note(self) -> str:
        return HOST_LOOKS if self._needs_host else ""

    @property
    def draft_noise(self) -> KeyedNoise:
        return KeyedNoise(self.sampling.seed)

    @property
    def num_bytes(self) -> int:
        """Bytes of all buffers, including the drafters'."""
        buffers = [*vars(self).values(), *self._packed.values(), self.cache.store]
        buffers += self.tree.buffers + self.penalties.buffers
        for drafter in self._heads.values():
            buffers += drafter.buffers
        tensors = {id(buffer): buffer for buffer in buffers if isinstance(buffer, Tensor)}
        return sum(tensor.nbytes for tensor in tensors.values() if tensor.device == self.device)

    def close(self) -> None:
        """Drop passes and drafters: their references would keep the buffers in memory until a garbage collection."""
        self.passes.clear()
        self._static_drafters.clear()
        self._heads.clear()
        self.served.clear()
        self.drafter = None

    def head_drafter(self, drafter: HeadDrafter) -> StaticHeadDrafter:
        """Return the drafter in these buffers; drafters with the same head share it."""
        if drafter.head not in self._heads:
            self._heads[drafter.head] = StaticHeadDrafter(drafter, self)
        return self._heads[drafter.head]

    @torch.inference_mode()
    def static_drafter(self, drafter: Drafter) -> Drafter | None:
        """Return the form of a drafter at these addresses, or None if it has none."""
        if drafter not in self._static_drafters:
            self._static_drafters[drafter] = static_form(drafter, self)
        return self._static_drafters[drafter]

    def needed(
        self, drafter: Drafter, sampling: SamplingParams, tree: TreeConfig, first: int, last: int
    ) -> Iterator[GraphedPass]:
        """Yield the passes of an answer with trees of this size and with `first` to `last` committed rows."""
        bound, schema = _depth_bound(tree), _evidence_schema(drafter, tree)
        yield self.passes.get(self.write_root, self.target.row_bucket(1), schema)
        if self._uses_noise(drafter, sampling, tree):
            yield self.passes.get(self.write_noise, bound + 1)
        for rows, live in sorted({self._rows_of(num_nodes) for num_nodes in (1, tree.nodes)}):
            columns, most_columns = self._columns(first, rows), self._columns(last, rows)
            while columns <= most_columns:
                yield self.passes.get(self.score_rows, rows, live, columns, bound)
                columns *= 2
            if not needs_host_processors(sampling):
                yield self.passes.get(self.verify_rows, rows, bound, schema, self._modes(sampling))
            yield self.passes.get(self.commit_rows, rows, bound)
        static_drafter = self.static_drafter(drafter)
        if static_drafter is not None and not tree.root_only:
            yield from draft_passes(static_drafter, tree, sampling.greedy)

    @torch.inference_mode()
    def open(
        self,
        drafter: Drafter,
        sampling: SamplingParams,
        tree: TreeConfig,
        first: int = 1,
        last: int = 1,
        on_capture: Callable[[], None] = lambda: None,
    ) -> "GraphBuffers":
        """Prepare for an answer: capture missing passes, before the buffers hold anything of the answer.

        Args:
            tree: the largest that the answer drafts.
            first, last: committed rows at the beginning, and at most.
            on_capture: called after each pass.
        """
        static_drafter = self.static_drafter(drafter)
        self.drafter, self._has_static_drafter = static_drafter or drafter, static_drafter is not None
        self.sampling, self._bound, self._schema = sampling, _depth_bound(tree), _evidence_schema(drafter, tree)
        self._with_noise, self._needs_host = self._uses_noise(drafter, sampling, tree), needs_host_processors(sampling)
        self._make_packed(self._schema)
        self.served.add(drafter)
        self.seed.fill_(sampling.seed)
        self.temperature.fill_(sampling.temperature or 1.0)
        self.top_p.fill_(sampling.top_p)
        self.top_k.fill_(sampling.top_k)
        self.log_min_p.fill_(sampling.log_min_p or 0.0)
        self.cache.length.fill_(1)
        # Warm-ups run on the current tree: a deeper tree of another answer would exceed this one's bound
        self.tree.write(DraftTree.root_only(self.root), self.tree.rows, ())
        self.passes.open()
        if (last - first) / (1 if tree.root_only else TOKENS_PER_STEP) >= self.passes.fewest_steps:
            for graphed in self.needed(drafter, sampling, tree, first, last):
                graphed.prepare()
                on_capture()
        self._length = 0
        self._placed: DraftTree | None = None
        self.rows.keep(0)
        return self

    def prefill(self, prompt_ids: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.target.prefill(prompt_ids, self.rows)
        self._length = self.rows.length
        return features, logits

    @torch.inference_mode()
    def begin(self, root: Tensor, processors: LogitsProcessorList | None = None) -> None:
        self.root.copy_(root)
        self.processors = processors
        if processors is not None:
            processors.move_to(self.penalties)
        self._enter_step()

    @torch.inference_mode()
    def set_length(self, length: int) -> None:
        """Set the number of committed rows, which must have been written."""
        self._length = length
        self._enter_step()

    def root_tree(self) -> DraftTree:
        self.passes.get(self.write_root, self.target.row_bucket(1), self._schema)()
        self._placed = self.tree.first(1, 0, self._schema)
        return self._placed

    @torch.inference_mode()
    def place_tree(self, tree: DraftTree) -> DraftTree:
        if tree is self._placed or tree.token_ids.data_ptr() == self.tree.first_address:
            return tree
        self.tree.write(tree, self.target.row_bucket(tree.num_nodes), self._schema)
        self._placed = self.tree.first(tree.num_nodes, tree.max_depth, self._schema)
        return self._placed

    @torch.inference_mode()
    def score(self, tree: DraftTree) -> None:
        rows, live = self._rows_of(self.place_tree(tree).num_nodes)
        self.passes.get(self.score_rows, rows, live, self._columns(self._length, rows), self._bound)()

    @torch.inference_mode()
    def verify(self, tree: DraftTree, whole_vocabulary: bool = False) -> Outcome:
        rows, modes = self.target.row_bucket(tree.num_nodes), self._modes(self.sampling, whole_vocabulary)
        placed = self.tree.first(tree.num_nodes, tree.max_depth, self._schema)
        if self._needs_host:
            logits = self.processors.adjust(self.scored[:rows], placed, self.mask[:rows, : tree.num_nodes])
            self._verify_logits(logits, rows, self._bound, self._schema, modes)
        else:
            self.passes.get(self.verify_rows, rows, self._bound, self._schema, modes)()
        self._verified_rows = rows
        return unpack(self._to_host(rows), placed, rows)

    def logits(self, num_nodes: int) -> Tensor:
        return self.scored[:num_nodes]

    @torch.inference_mode()
    def processed_logits(self, num_nodes: int) -> Tensor:
        if self.processors is None:
            return self.scored[:num_nodes]
        rows = self._verified_rows
        placed = self.tree.first(num_nodes, min(num_nodes - 1, self._bound), self._schema)
        return self.processors.adjust(self.scored[:rows], placed, self.mask[:rows, :num_nodes])[:num_nodes]

    @torch.inference_mode()
    def commit(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        self.passes.get(self.commit_rows, self._verified_rows, self._bound)()
        count = len(outcome.accepted_path) + 1
        self._length += count
        self._enter_step()
        ids, features = self.new_ids[:count], self.new_features[:count]
        # A drafter without a static form may keep the tensors beyond the next commit
        return (ids, features) if self._has_static_drafter else (ids.clone(), features.clone())

    def write_root(self, rows: int, schema: EvidenceSchema) -> None:
        """Pass: write the tree of plain decoding."""
        self.tree.write(DraftTree.root_only(self.root), rows, schema)

    def write_noise(self, count: int) -> None:
        """Pass: write the target's noise at the `count` positions after the root."""
        positions = self.cache.length + 1 + torch.arange(count, device=self.device)
        self.noise[:count].copy_(KeyedNoise(self.seed).at(positions[:, None], self.vocabulary))

    def score_rows(self, rows: int, live: int, columns: int, bound: int) -> None:
        """Pass: run the target over `rows` nodes; nodes after the first `live` are pads."""
        tree = self.tree.first(rows, min(rows - 1, bound), ())
        scores = self.target.score(tree, self.cache.following(columns=columns), live)
        self.scored[:rows].copy_(scores.logits)
        self.features[:rows].copy_(scores.features)
        self.mask[:rows, :rows].copy_(scores.mask)

    def verify_rows(self, rows: int, bound: int, schema: EvidenceSchema, modes: VerifyModes) -> None:
        """Pass: compute the target's choices and the accepted path, and pack what the host reads."""
        logits, mask = self.scored[:rows], self.mask[:rows, :rows]
        if modes.has_penalties:
            token_ids = self.tree.first(rows, min(rows - 1, bound), ()).token_ids
            logits = self.penalties.adjust(logits, token_ids, drafted_path(mask))
        self._verify_logits(logits, rows, bound, schema, modes)

    def _verify_logits(self, logits: Tensor, rows: int, bound: int, schema: EvidenceSchema, modes: VerifyModes) -> None:
        """Verify the tree by the logits after the logits processors."""
        tree = self.tree.first(rows, min(rows - 1, bound), schema)
        sampling = DeviceSampling(
            modes.greedy,
            self.temperature,
            self.top_p if modes.has_top_p else None,
            self.top_k if modes.has_top_k else None,
            self.log_min_p if modes.has_min_p else None,
        )
        noise_rows = self.noise[: tree.max_depth + 1] if sampling.unfiltered else None
        mask, noise = self.mask[:rows, :rows], KeyedNoise(self.seed)
        verification = verify(tree, mask, logits, sampling, noise, self.cache.length, noise_rows, modes.prefix_length)
        self.choices[:rows].copy_(verification.choices)
        self.on_path[:rows].copy_(verification.on_path)
        self.end.copy_(verification.end)
        values = pack(tree, verification)
        self._packed[schema][: values.shape[0]].copy_(values)

    def commit_rows(self, rows: int, bound: int) -> None:
        """Pass: compact the accepted cache rows and copy the new tokens and their features."""
        count = min(bound + 1, rows)
        places = torch.arange(rows, device=self.device)
        path = torch.where(self.on_path[:rows], places, rows).sort().values[:count]
        # Rows after the path stay in place
        path = torch.where(path < rows, path, places[:count])
        if count > 1:
            self.cache.gather(path)
        self.new_ids[:count].copy_(self.choices.index_select(0, path))
        self.new_features[:count].copy_(self.features.index_select(0, path))
        self.root.copy_(self.choices.index_select(0, self.end[None]))

    def _enter_step(self) -> None:
        self.cache.length.fill_(self._length)
        if self._with_noise:
            self.passes.get(self.write_noise, self._bound + 1)()

    def _make_packed(self, schema: EvidenceSchema) -> None:
        """Allocate the source of the device-to-host copy for trees with this evidence."""
        if schema not in self._packed:
            self.tree.evidence(schema)
            size = _packed_size(self.tree.rows, schema)
            self._packed[schema] = torch.zeros(size, dtype=torch.float64, device=self.device)

    def _to_host(self, rows: int) -> list[float]:
        """Make the step's one device-to-host copy."""
        return self._packed[self._schema][: _packed_size(rows, self._schema)].tolist()

    def _rows_of(self, num_nodes: int) -> tuple[int, int]:
        """Return the rows of a pass over a tree, and how many attention computes: a root's pads are left out."""
        rows = self.target.row_bucket(num_nodes)
        return rows, 1 if num_nodes == 1 else rows

    def _columns(self, length: int, rows: int) -> int:
        return columns_for(length + rows, self.smallest_columns)

    def _modes(self, sampling: SamplingParams, whole_vocabulary: bool = False) -> VerifyModes:
        """Return the modes of `verify_rows`, which are fixed in a captured pass.

        Greedy decoding has no filters; a top-k of the vocabulary size or more is none.

        Args:
            whole_vocabulary: sort all logits, see `BackendSession.verify`.
        """
        samples = not sampling.greedy
        has_top_k = samples and 0 < sampling.top_k < self.target.vocab_size
        return VerifyModes(
            has_penalties=has_penalties(sampling),
            greedy=sampling.greedy,
            has_top_p=samples and sampling.top_p < 1,
            has_top_k=has_top_k,
            has_min_p=samples and sampling.min_p > 0,
            prefix_length=(
                self.target.vocab_size if whole_vocabulary else prefix_for(sampling.top_k if has_top_k else 0)
            ),
        )

    def _uses_noise(self, drafter: Drafter, sampling: SamplingParams, tree: TreeConfig) -> bool:
        """Return whether the target, or a drafter that ranks with it, uses noise over the whole vocabulary."""
        is_ranked = tree.shared_noise and not tree.root_only and self.static_drafter(drafter) is not None
        return sampling.unfiltered or (is_ranked and not sampling.greedy)


def _depth_bound(tree: TreeConfig) -> int:
    """Return the maximum number of levels of the passes: 0, that of automatic trees, or the overall maximum."""
    if tree.root_only:
        return 0
    return MAX_CHAIN if tree.depth <= MAX_CHAIN else MAX_LEVELS


def _evidence_schema(drafter: Drafter, tree: TreeConfig) -> EvidenceSchema:
    """Return names and widths of the evidence of an answer's trees."""
    return () if tree.root_only else drafter.evidence


def _packed_size(rows: int, schema: EvidenceSchema) -> int:
    return packed_size(rows, sum(width for _, width in schema))
