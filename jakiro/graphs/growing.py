"""A whole tree grown at fixed shapes, in as few kernels as torch's operations allow.

The trees are `TreeGrower`'s, which is the reference. Here levels are always full, so that most columns of the
candidates are the same in every step: they are made once, before the pass is captured.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jakiro.config import TreeConfig
from jakiro.core.sampling import DeviceSampling, tempered
from jakiro.drafting.candidates import Candidates, known_scores
from jakiro.drafting.growing import Experts, Ranking, Shares
from jakiro.graphs.cache import StaticCache
from jakiro.graphs.head import FusedHead
from jakiro.heads.calibration import Calibration

# Committed rows that one pass takes in; several root-only steps may leave more, which are read aside.
PENDING_ROWS = 32


class TreeForm:
    """What all trees of one config have in common.

    Candidates are numbered level by level, the root is 0; a block is `width` candidates with one parent.

    Attributes:
        contrastive: whether the last level comes from the contrastive branch.
        passes: of the head, the one over committed rows included.
        columns: (4, 1 + candidates) int64: depths, draft passes, proposers, other proposers.
        blocks: (1 + candidates,) int64, the block of each, 0 for the root and its children.
        offsets: (blocks,) int64, the number of the first candidate of the level that a block's parent is in.
        drafted_rows: (blocks − 1,) int64, the row of the draft's passes from which each block came, without the
            last level's where that is contrastive.
    """

    def __init__(self, fused: FusedHead, config: TreeConfig, columns: int) -> None:
        head, like = fused.config, fused.head.output_weight
        device, dtype = like.device, like.dtype
        self.contrastive = head.contrastive and config.contrastive and config.depth >= 2
        self.width = width = min(config.width, config.nodes - 1, fused.head.draft_token_ids.shape[0])
        self.depth, self.passes = config.depth, config.depth - self.contrastive
        levels = [width] + [width * width] * (config.depth - 1)
        self.count = sum(levels)
        self.nodes = min(config.nodes, self.count + 1)
        depths, blocks, offsets = [0], [0], [0]
        for depth, count in enumerate(levels, 1):
            depths += [depth] * count
            block = len(offsets) - width if depth > 1 else 0
            blocks += [block + index // width for index in range(count)]
            if depth < config.depth:
                offsets += [1 + sum(levels[: depth - 1])] * width
        by_branch = [self.contrastive and depth == config.depth for depth in depths]
        own = -1 if head.fusion == "decoupled" else 0
        proposers = [-1, *(head.num_experts if ahead else own for ahead in by_branch[1:])]
        passes = [min(depth, self.passes) for depth in depths]

        def numbers(values) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        self.columns, self.blocks = numbers([depths, passes, proposers, [0] * len(depths)]), numbers(blocks)
        self.offsets, self.first = numbers(offsets), numbers(range(width))
        self.drafted_rows = PENDING_ROWS + numbers(range(width * (self.passes - 1)))
        self.zero, self.unknown = torch.zeros(1, device=device), torch.full((1,), torch.nan, device=device)
        self.root_block, self.no_proposer = numbers([0]), numbers([-1])
        # Of masks, as numbers to add: what a row sees of the rows of its own pass, and of what lies before and after
        groups = head.num_attention_heads // head.num_key_value_heads
        self.own_rows = _unseen(width, dtype, device).fill_diagonal_(0.0).expand(groups, -1, -1)
        self.pending_rows = _unseen(PENDING_ROWS, dtype, device).triu(1).expand(groups, -1, -1)
        self.places = numbers(range(max(columns, PENDING_ROWS + self.passes * width)))
        self.seen, self.unseen = like.new_zeros(()), like.new_full((), -torch.inf)
        self.groups, self.num_columns = groups, columns


def _unseen(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((count, count), -torch.inf, dtype=dtype, device=device)


class Grown(NamedTuple):
    """Candidates of a whole tree with the root in front.

    Attributes:
        values: (2, 1 + candidates) float32, scores and draft probabilities.
        token_ids: (1 + candidates,) int64. proposers: the same, None where the form knows them.
        parents, rows: (blocks,) int64, the candidate from which a block's stem, and the row of the evidence.
    """

    values: Tensor
    token_ids: Tensor
    proposers: Tensor | None
    parents: Tensor
    rows: Tensor

    def candidates(self, form: TreeForm) -> Candidates:
        """Without the root, in the usual form."""
        depths, passes, proposers, also = form.columns[:, 1:].unbind(0)
        own, rows = (column.index_select(0, form.blocks)[1:] for column in (self.parents, self.rows))
        proposers = proposers if self.proposers is None else self.proposers[1:]
        scores, draft_probs = self.values[:, 1:].unbind(0)
        return Candidates(self.token_ids[1:], own, depths, scores, passes, draft_probs, proposers, also, rows)


class FixedGrower:
    """Grows one tree.

    Args:
        cache: its length is that of the committed rows before the pending ones.
        pending_ids, pending_features: committed tokens and features, padded; `count`, () int64, are not pads.
        noise: as `TreeGrower` takes it.
    """

    def __init__(
        self, fused: FusedHead, cache: StaticCache, form: TreeForm, sampling: DeviceSampling, noise: Tensor | None
    ) -> None:
        self.fused, self.head, self.cache, self.form = fused, fused.head, cache, form
        self.sampling = sampling
        self.ranking = Ranking(Calibration(fused.config.calibration, sampling), noise)
        self.decoupled = fused.config.fusion == "decoupled"
        self.token_ids: list[Tensor] = []
        self.scores: list[Tensor] = []
        self.draft_probs: list[Tensor] = []
        self.proposers: list[Tensor] = []

    def grow(self, pending_ids: Tensor, pending_features: Tensor, count: Tensor) -> Grown:
        """Reads the pending rows and grows a tree after the last of them."""
        form, width = self.form, self.form.width
        last = count[None] - 1
        features = self._read(pending_ids, pending_features, last)
        start = self.cache.length + count
        places = start + form.places[: max(width * (form.passes - 1), form.passes)]
        angles = self.fused.angles.index_select(0, places[: form.passes])
        before = self._before(start)
        frontier, rows, best, parents, mask = form.first, None, None, [], None
        weights = self.fused.mixing.index_select(0, last)[:, 0] if self.decoupled else None
        for depth in range(1, form.passes + 1):
            ahead = self._add_main(features, weights, best, depth)
            if depth == form.depth:
                break
            if depth > 1:
                ordered = self.scores[-1].sort(descending=True, stable=True)
                frontier, best = ordered.indices[:width], ordered.values[:width]
                rows = frontier // width
            else:
                best = self.scores[-1]
            parents.append(frontier)
            if depth == form.passes:
                own = self._add_contrastive(ahead, rows, best)
                break
            mask = self._mask(before, mask, rows, places[(depth - 1) * width : depth * width])
            ids = self.token_ids[-1] if rows is None else self.token_ids[-1].index_select(0, frontier)
            first = PENDING_ROWS + (depth - 1) * width
            features = self.fused.run(
                self.head.embed(ids),
                self._of_proposers(features, frontier, rows),
                angles[depth - 1 : depth],
                places[(depth - 1) * width : depth * width],
                mask,
                first,
            )
            weights = self.fused.mixing[first : first + width, 0]
        block_rows = [last, form.drafted_rows]
        if form.contrastive and form.passes > 1:
            block_rows.append(own + (PENDING_ROWS + (form.passes - 2) * width))
        elif form.contrastive:
            block_rows.append(last.expand(width))
        root_token = pending_ids.index_select(0, last)
        numbers = torch.cat([form.zero, *self.scores, form.unknown, *self.draft_probs]).view(2, -1)
        known_scores(numbers[0], out=numbers[0])
        return Grown(
            numbers,
            torch.cat([root_token, *self.token_ids]),
            torch.cat([form.no_proposer, *self.proposers]) if self.decoupled else None,
            torch.cat([form.root_block, *parents]) + form.offsets,
            torch.cat(block_rows),
        )

    def _read(self, ids: Tensor, features: Tensor, last: Tensor) -> Tensor:
        """The pass over the pending rows; features of the last one, as `FusedHead.run` gives them."""
        form, length = self.form, self.cache.length
        places = length + form.places[:PENDING_ROWS]
        mask = self._before(length).expand(form.groups, PENDING_ROWS, -1).clone()
        mask.index_copy_(2, places, form.pending_rows)
        angles = self.fused.angles.index_select(0, places)
        features = self.fused.run(self.head.embed(ids), features, angles, places, mask, 0)
        return features.index_select(1 if self.decoupled else 0, last)

    def _before(self, length: Tensor) -> Tensor:
        """(columns,) to add to scores: rows before the length are seen."""
        form = self.form
        return torch.where(form.places[: form.num_columns] < length, form.seen, form.unseen)

    def _mask(self, before: Tensor, above: Tensor | None, rows: Tensor | None, places: Tensor) -> Tensor:
        """(groups, width, columns): what their parents' rows saw, and themselves."""
        form = self.form
        first = before.expand(form.groups, form.width, -1)
        mask = first.clone() if rows is None else above.index_select(1, rows)
        return mask.index_copy_(2, places, form.own_rows)

    def _of_proposers(self, features: Tensor, frontier: Tensor, rows: Tensor | None) -> Tensor:
        """(width, hidden), of the rows that the frontier came from, each its proposer's."""
        if not self.decoupled:
            main = features[:, 0]
            return main.expand(self.form.width, -1) if rows is None else main.index_select(0, rows)
        proposers = self.proposers[-1]
        if rows is None:
            return features.flatten(0, 1).index_select(0, proposers)
        places = torch.add(rows, proposers.index_select(0, frontier), alpha=features.shape[1])
        return features.flatten(0, 1).index_select(0, places)

    def _add_main(self, features: Tensor, weights: Tensor | None, best: Tensor | None, depth: int) -> Tensor | None:
        """Adds a level from the main branch; returns log q of the contrastive one where that is the next level."""
        shares = ahead = None
        if self.decoupled:
            log_q, shares = Experts.of(self._scaled(features), weights).mixed()
        elif self.form.contrastive and depth == self.form.passes:
            # The output rows are read once for both branches
            log_q, ahead = self._scaled(features.transpose(0, 1).flatten(0, 1)).chunk(2)
        else:
            log_q = self._scaled(features[:, 0])
        self._add(log_q, shares, best, depth)
        return ahead

    def _add_contrastive(self, ahead: Tensor, rows: Tensor | None, best: Tensor) -> Tensor | None:
        """The deepest level: each best node of the level above gets its own row's candidates; returns those rows."""
        log_q = ahead.expand(self.form.width, -1) if rows is None else ahead.index_select(0, rows)
        self._add(log_q, None, best, self.form.depth, True)
        return rows

    def _add(
        self, log_q: Tensor, shares: Shares | None, best: Tensor | None, depth: int, contrastive: bool = False
    ) -> None:
        """Appends a level: `best` are the scores of the nodes that its rows follow, None for the root's."""
        indices, estimates, draft_probs = self.ranking.best(log_q, self.form.width, depth, contrastive)
        reduced = self.fused.config.draft_vocab_size is not None
        self.token_ids.append((self.head.draft_token_ids[indices] if reduced else indices).flatten())
        self.scores.append((estimates if best is None else best[:, None] + estimates).flatten())
        self.draft_probs.append(draft_probs.flatten())
        if shares is not None:
            self.proposers.append(shares.proposers(indices).flatten())

    def _scaled(self, features: Tensor) -> Tensor:
        return tempered(self.head.logits(features), self.sampling)
