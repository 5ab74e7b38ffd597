"""Slots: buffers of fixed address for one answer at a time, and every pass over them as a unit that can be captured.

What a step does is what `SlicedRunner` does, by the same functions; only shapes are padded to row buckets and column
steps, and lengths, seed and temperature lie on the device. A generator keeps its slots, an answer borrows one.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from jakiro.backends.cuda_graphs.cache import SMALLEST_COLUMNS, StaticCache, columns_for
from jakiro.backends.cuda_graphs.capture import GraphedPass, Graphs
from jakiro.backends.cuda_graphs.drafter import DraftBuffers, StaticHeadDrafter
from jakiro.backends.cuda_graphs.tree import MAX_LEVELS, Layout
from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.logits_processors import Counted, TokenRule, counts, drafted_path, looks_on_host
from jakiro.core.noise import KeyedNoise
from jakiro.core.sampling import DeviceSampling, prefix_for
from jakiro.core.tree import DraftTree
from jakiro.core.verify import Outcome, verify
from jakiro.decode.outcome import pack, packed_size, unpack
from jakiro.drafters.base import Context, Drafter, DraftSession, Proposal
from jakiro.drafters.candidates import MAX_CHAIN
from jakiro.drafters.head import HeadDrafter
from jakiro.heads.base import DraftHead
from jakiro.models.passes import TREE_ROWS
from jakiro.models.target import TargetModel

# Of the largest tree, and levels × width of the widest draft
MOST_NODES, MOST_DRAFT_ROWS = TREE_ROWS, 256
HOST_LOOKS = "The host looks at each tree before the target chooses, so nothing is drafted ahead."
# What a drafted step is taken to bring, before there is one
TOKENS_A_STEP = 3.5


class Slot(DraftBuffers):
    """One answer's device side at fixed addresses; see `Runner` for what its methods promise.

    A drafter that has a form at fixed addresses drafts in these buffers, any other one drafts as it always does.
    Nobody asks for a prompt's rows here, see `max_reusable_tokens`.

    Args:
        target: one with `fused` layers, with passes in row buckets.
        tokens: of prompt and answer, at most.
        smallest_columns: of attention, see `columns_for`.
    """

    # On a GPU a prompt's rows round by how many are read at once
    max_reusable_tokens = 0

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
        self.counted, self.rule = Counted.empty(target.vocab_size, device), None
        # What a step's one copy brings to the host, by the evidence of its trees
        self._packed: dict[Layout, Tensor] = {}
        self._heads: dict[DraftHead, StaticHeadDrafter] = {}
        self._capturable: dict[Drafter, Drafter | None] = {}
        self.served: set[Drafter] = set()

    @property
    def drafts_ahead(self) -> bool:
        return self.device.type == "cuda" and not self._foreign and not self._on_host

    @property
    def note(self) -> str:
        return HOST_LOOKS if self._on_host else ""

    @property
    def num_bytes(self) -> int:
        """Of all buffers, those of drafters included."""
        found = [*vars(self).values(), *self._packed.values(), self.cache.store]
        found += self.tree.buffers + self.counted.buffers
        for drafter in self._heads.values():
            found += drafter.buffers
        tensors = {id(each): each for each in found if isinstance(each, Tensor) and each.device == self.device}
        return sum(each.numel() * each.element_size() for each in tensors.values())

    def close(self) -> None:
        """Lets go of passes and drafters, which hold the slot and so would keep it from being freed at once."""
        self.passes.clear()
        self._capturable.clear()
        self._heads.clear()
        self.served.clear()

    def head_drafter(self, like: HeadDrafter) -> StaticHeadDrafter:
        """The drafter in these buffers; those with the same head share it."""
        if like.head not in self._heads:
            self._heads[like.head] = StaticHeadDrafter(like, self)
        return self._heads[like.head]

    @torch.inference_mode()
    def capturable(self, drafter: Drafter) -> Drafter | None:
        """A drafter's form at this slot's addresses, None where it has none."""
        if drafter not in self._capturable:
            self._capturable[drafter] = drafter.capturable_in(self)
        return self._capturable[drafter]

    def needed(
        self, drafter: Drafter, sampling: SamplingParams, tree: TreeConfig, first: int, last: int
    ) -> Iterator[GraphedPass]:
        """The passes of an answer with such trees, or none, whose committed rows go from `first` to `last`."""
        bound, layout, nodes = _depth_bound(tree), _layout(drafter, tree), {1, tree.nodes}
        yield self.passes.get(self.write_root, self.target.row_bucket(1), layout)
        if self._keeps_noise(drafter, sampling, tree):
            yield self.passes.get(self.write_noise, bound + 1)
        for rows, live in sorted({self._rows_of(each) for each in nodes}):
            columns, most = self._columns(first, rows), self._columns(last, rows)
            while columns <= most:
                yield self.passes.get(self.score_rows, rows, live, columns, bound)
                columns *= 2
            if not looks_on_host(sampling):
                yield self.passes.get(self.verify_rows, rows, bound, layout, *self._regime(sampling))
            yield self.passes.get(self.commit_rows, rows, bound)
        capturable = self.capturable(drafter)
        if capturable is not None and not tree.root_only:
            yield from capturable.passes(tree, sampling.greedy)

    @torch.inference_mode()
    def open(
        self,
        drafter: Drafter,
        sampling: SamplingParams,
        tree: TreeConfig,
        first: int = 1,
        last: int = 1,
        captured: Callable[[], None] = lambda: None,
    ) -> "Slot":
        """Prepares for an answer: captures what is not captured yet, before the buffers hold anything of it."""
        self.sampling, self._bound, self._layout = sampling, _depth_bound(tree), _layout(drafter, tree)
        self._with_noise = self._keeps_noise(drafter, sampling, tree)
        self._foreign, self._on_host = self.capturable(drafter) is None, looks_on_host(sampling)
        self._buffers_for(self._layout)
        self.served.add(drafter)
        self.seed.fill_(sampling.seed)
        self.temperature.fill_(sampling.temperature or 1.0)
        self.top_p.fill_(sampling.top_p)
        self.top_k.fill_(sampling.top_k)
        self.log_min_p.fill_(sampling.log_min_p or 0.0)
        self.cache.length.fill_(1)
        # Warm-ups run with what lies here: a deeper tree of another answer would not fit this one's bound
        self.tree.write(DraftTree.root_only(self.root), self.tree.rows, ())
        self.passes.open()
        if (last - first) / (1 if tree.root_only else TOKENS_A_STEP) >= self.passes.fewest_steps:
            for each in self.needed(drafter, sampling, tree, first, last):
                each.prepare()
                captured()
        self._length = 0
        self._placed: DraftTree | None = None
        self.rows.keep(0)
        return self

    def prefill(self, prompt_ids: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.target.prefill(prompt_ids, self.rows)
        self._length = self.rows.length
        return features, logits

    @torch.inference_mode()
    def begin(self, root: Tensor, rule: TokenRule | None = None) -> None:
        self.root.copy_(root)
        self.rule = rule
        if rule is not None:
            rule.move_to(self.counted)
        self._enter_step()

    @torch.inference_mode()
    def hold(self, length: int) -> None:
        """Goes back, or on, to the first `length` rows that were written."""
        self._length = length
        self._enter_step()

    def session(self, drafter: Drafter, prompt: Context) -> DraftSession:
        return (self.capturable(drafter) or drafter).start(prompt, self.sampling, KeyedNoise(self.sampling.seed))

    def root_tree(self) -> DraftTree:
        self.passes.get(self.write_root, self.target.row_bucket(1), self._layout)()
        self._placed = self.tree.first(1, 0, self._layout)
        return self._placed

    @torch.inference_mode()
    def place(self, tree: DraftTree) -> DraftTree:
        if tree is self._placed or tree.token_ids.data_ptr() == self.tree.first_address:
            return tree
        self.tree.write(tree, self.target.row_bucket(tree.num_nodes), self._layout)
        self._placed = self.tree.first(tree.num_nodes, tree.max_depth, self._layout)
        return self._placed

    @torch.inference_mode()
    def score(self, tree: DraftTree) -> None:
        nodes = self.place(tree).num_nodes
        rows, live = self._rows_of(nodes)
        self.passes.get(self.score_rows, rows, live, self._columns(self._length, rows), self._bound)()

    @torch.inference_mode()
    def verify(self, proposal: Proposal, whole_vocabulary: bool = False) -> Outcome:
        nodes, levels = proposal.tree.num_nodes, proposal.tree.max_depth
        rows, regime = self.target.row_bucket(nodes), self._regime(self.sampling, whole_vocabulary)
        placed = self.tree.first(nodes, levels, self._layout)
        if self._on_host:
            logits = self.rule.adjust(self.scored[:rows], placed, self.mask[:rows, :nodes])
            self._verify(logits, rows, self._bound, self._layout, *regime[1:])
        else:
            self.passes.get(self.verify_rows, rows, self._bound, self._layout, *regime)()
        self._read_rows = rows
        return unpack(self._to_host(rows), placed, rows)

    def logits(self, num_nodes: int) -> Tensor:
        return self.scored[:num_nodes]

    @torch.inference_mode()
    def chosen_from(self, num_nodes: int) -> Tensor:
        if self.rule is None:
            return self.scored[:num_nodes]
        rows = self._read_rows
        placed = self.tree.first(num_nodes, min(num_nodes - 1, self._bound), self._layout)
        return self.rule.adjust(self.scored[:rows], placed, self.mask[:rows, :num_nodes])[:num_nodes]

    @torch.inference_mode()
    def commit(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        self.passes.get(self.commit_rows, self._read_rows, self._bound)()
        count = len(outcome.accepted_path) + 1
        self._length += count
        self._enter_step()
        ids, features = self.new_ids[:count], self.new_features[:count]
        # A drafter that is not the slot's own may keep what it is given beyond the next commit.
        return (ids.clone(), features.clone()) if self._foreign else (ids, features)

    def write_root(self, rows: int, layout: Layout) -> None:
        """Pass: the tree that is only its root."""
        self.tree.write(DraftTree.root_only(self.root), rows, layout)

    def write_noise(self, count: int) -> None:
        """Pass: the target's noise at the `count` positions after the root."""
        positions = self.cache.length + 1 + torch.arange(count, device=self.device)
        self.noise[:count].copy_(KeyedNoise(self.seed).at(positions[:, None], self.vocabulary))

    def score_rows(self, rows: int, live: int, columns: int, bound: int) -> None:
        """Pass: the target over `rows` nodes, of which the first `live` are no pads."""
        tree = self.tree.first(rows, min(rows - 1, bound), ())
        scores = self.target.score(tree, self.cache.following(columns=columns), live)
        self.scored[:rows].copy_(scores.logits)
        self.features[:rows].copy_(scores.features)
        self.mask[:rows, :rows].copy_(scores.mask)

    def verify_rows(self, rows: int, bound: int, layout: Layout, counted: bool, *regime) -> None:
        """Pass: the target's choices, the accepted path, and all the caller sees in one tensor.

        Args:
            counted: whether biases or penalties change the logits before. regime: see `_verify`.
        """
        logits, mask = self.scored[:rows], self.mask[:rows, :rows]
        if counted:
            token_ids = self.tree.first(rows, min(rows - 1, bound), ()).token_ids
            logits = self.counted.adjusted(logits, token_ids, drafted_path(mask))
        self._verify(logits, rows, bound, layout, *regime)

    def _verify(
        self, logits: Tensor, rows: int, bound: int, layout: Layout, greedy: bool, limits: tuple, prefix_length: int
    ) -> None:
        """What follows the logits in `verify_rows`.

        Args:
            limits: whether top-p, top-k and min-p drop tokens; how many, the device knows, as it does the seed and the
                temperature. prefix_length: see `warp`.
        """
        tree = self.tree.first(rows, min(rows - 1, bound), layout)
        numbers = zip((self.top_p, self.top_k, self.log_min_p), limits, strict=True)
        held = DeviceSampling(greedy, self.temperature, *(number if drops else None for number, drops in numbers))
        noise, noise_rows = KeyedNoise(self.seed), self.noise[: tree.max_depth + 1] if held.unfiltered else None
        asked = (held, noise, self.cache.length, noise_rows, prefix_length)
        verification = verify(tree, self.mask[:rows, :rows], logits, *asked)
        self.choices[:rows].copy_(verification.choices)
        self.on_path[:rows].copy_(verification.on_path)
        self.end.copy_(verification.end)
        values = pack(tree, verification)
        self._packed[layout][: values.shape[0]].copy_(values)

    def commit_rows(self, rows: int, bound: int) -> None:
        """Pass: moves the accepted rows together and takes out new tokens and their features."""
        count = min(bound + 1, rows)
        places = torch.arange(rows, device=self.device)
        path = torch.where(self.on_path[:rows], places, rows).sort().values[:count]
        # After the path every row stays where it is.
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

    def _buffers_for(self, layout: Layout) -> None:
        """Makes room for what a step's one copy brings to the host, where there is none for such evidence yet."""
        if layout not in self._packed:
            self.tree.evidence(layout)
            size = _packed_size(self.tree.rows, layout)
            self._packed[layout] = torch.zeros(size, dtype=torch.float64, device=self.device)

    def _to_host(self, rows: int) -> list[float]:
        """The step's one device-to-host copy."""
        return self._packed[self._layout][: _packed_size(rows, self._layout)].tolist()

    def _rows_of(self, nodes: int) -> tuple[int, int]:
        """Rows of a pass over a tree, and those that attention computes: a root's pads are left out."""
        rows = self.target.row_bucket(nodes)
        return rows, 1 if nodes == 1 else rows

    def _columns(self, length: int, rows: int) -> int:
        return columns_for(length + rows, self.smallest_columns)

    def _regime(self, sampling: SamplingParams, whole_vocabulary: bool = False) -> tuple:
        """The last arguments of `verify_rows`; a top-k of the whole vocabulary or more drops nothing."""
        drawn = not sampling.greedy
        dropped = drawn and 0 < sampling.top_k < self.target.vocab_size
        prefix_length = self.target.vocab_size if whole_vocabulary else prefix_for(sampling.top_k if dropped else 0)
        limits = drawn and sampling.top_p < 1, dropped, drawn and sampling.min_p > 0
        return counts(sampling), sampling.greedy, limits, prefix_length

    def _keeps_noise(self, drafter: Drafter, sampling: SamplingParams, tree: TreeConfig) -> bool:
        """Whether the target, or a drafter that ranks with it, uses noise over the whole vocabulary."""
        ranked = tree.shared_noise and not tree.root_only and self.capturable(drafter) is not None
        return sampling.unfiltered or (ranked and not sampling.greedy)


def _depth_bound(tree: TreeConfig) -> int:
    """Levels that passes have room for: none, as many as automatic trees have, or the most that are allowed."""
    if tree.root_only:
        return 0
    return MAX_CHAIN if tree.depth <= MAX_CHAIN else MAX_LEVELS


def _layout(drafter: Drafter, tree: TreeConfig) -> Layout:
    """The evidence that an answer's trees hold."""
    return () if tree.root_only else drafter.evidence


def _packed_size(rows: int, layout: Layout) -> int:
    return packed_size(rows, sum(width for _, width in layout))
