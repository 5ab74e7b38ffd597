"""GSD: runs of tokens that several branches share are drafted once (graph-structured drafts, arXiv 2407.16207).

If the last tokens of a candidate equal those of a node that was already expanded in another branch, that node is its
twin. The candidate's children are taken from the twin's row, ranked with the noise of their own depth, and no row is
drafted for it. The draft is then an acyclic graph. It is unrolled before the target reads it: every branch has its own
nodes with their own ancestors, so the method stays lossless.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from jakiro.drafters.base import Proposal, Proposer
from jakiro.drafters.candidates import Candidates
from jakiro.drafters.experts import experts_of, proposers_of
from jakiro.drafters.head import LAYERS, HeadDrafter, head_method
from jakiro.drafters.tree_growth import TreeGrower
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput

# Number of equal tokens at the end of the paths of a candidate and its twin
SHARED_TOKENS = 2
MERGED = Proposer("merged", "Taken over", "Drafted once, after the same words in another branch of this tree.")


class RunGraph:
    """The drafted rows by their last tokens, and the edges between them; row 0 is the root's.

    Args:
        root_token_id: token of the tree's root.
        shared: number of tokens that twins have in common.
    """

    def __init__(self, root_token_id: int, shared: int) -> None:
        self.shared = shared
        self.paths: list[tuple[int, ...]] = [(root_token_id,)]
        self.following: list[set[int]] = [set()]
        self._rows: dict[tuple[int, ...], list[int]] = defaultdict(list)

    def twin(self, above: int, token_id: int) -> int | None:
        """Return the row to reuse for a candidate below row `above`, or None.

        Rows that would close a cycle are not used.
        """
        path = (*self.paths[above], token_id)
        rows = self._rows[path[-self.shared :]] if len(path) >= self.shared else []
        row = next((row for row in rows if not self._leads(row, above)), None)
        if row is not None:
            self.following[above].add(row)
        return row

    def add(self, above: int, token_id: int) -> int:
        """Add a row and return its number."""
        path, row = (*self.paths[above], token_id), len(self.paths)
        self.paths.append(path)
        self.following.append(set())
        self.following[above].add(row)
        self._rows[path[-self.shared :]].append(row)
        return row

    def _leads(self, row: int, end: int) -> bool:
        """Return whether a path leads from `row` to `end`."""
        return row == end or any(self._leads(follower, end) for follower in self.following[row])


class GraphGrower(TreeGrower):
    """Grows a tree level by level and drafts shared runs once.

    Args:
        shared: number of equal tokens at the end of the paths of a candidate and its twin; 0 merges nothing.
    """

    def __init__(self, head, cache, root, root_token, inputs, shared=SHARED_TOKENS) -> None:
        inputs = replace(inputs, tree=replace(inputs.tree, contrastive=False))
        super().__init__(head, cache, root, root_token, inputs)
        self.shared = shared
        # Drafted rows to which each row attends, itself included
        self.visible = torch.zeros((1, 0), dtype=torch.bool, device=self.device)
        self.taken_over: list[Tensor] = []

    def grow(self) -> Proposal:
        self._append(None, self.numbers[:1], [False])
        graph = RunGraph(self.root_token.tolist()[0], self.shared)
        for depth in range(1, self.last_expanded + 1):
            above, frontier = self.levels[-1], self._worth_expanding(self._best(self.levels[-1]))
            if not frontier.shape[0]:
                break
            pairs = torch.stack([above.rows[frontier], above.token_ids[frontier]]).T.tolist()
            rows, merged, fresh = [], [], []
            for place, (row_above, token_id) in enumerate(pairs):
                twin = graph.twin(row_above, token_id) if self.shared else None
                merged.append(twin is not None)
                rows.append(graph.add(row_above, token_id) if twin is None else twin)
                if twin is None:
                    fresh.append(place)
            if fresh:
                self._draft(frontier[torch.tensor(fresh, device=self.device)], depth)
            rows = torch.tensor(rows, device=self.device)
            self._append(frontier, rows, merged)
        return self._select()

    def _draft(self, frontier: Tensor, depth: int) -> None:
        """Run one pass over the candidates of the frontier without a twin."""
        rows, count = self.levels[-1].rows[frontier], frontier.shape[0]
        identity = torch.eye(count, dtype=torch.bool, device=self.device)
        seen = torch.cat([self.visible[rows], identity], dim=1)
        self._expand(frontier, self._rows_in_pass(frontier), seen, depth)
        before = torch.nn.functional.pad(self.visible, (0, count))
        self.visible = torch.cat([before, seen])

    def _append(self, frontier: Tensor | None, rows: Tensor, merged: list[bool]) -> None:
        """Append the children of the given rows, one for each node of the frontier."""
        children = self._children(self._main_scores(self._at(rows)), len(self.levels) + 1)
        self._add(children, frontier, rows)
        merged = torch.tensor(merged, device=self.device)
        self.taken_over.append(merged[:, None].expand(-1, self.width).flatten())

    def _features(self, frontier: Tensor, output: HeadOutput, rows: Tensor) -> Tensor:
        return super()._features(frontier, self._all_rows(), self.levels[-1].rows[frontier])

    def _at(self, rows: Tensor) -> HeadOutput:
        """Return the outputs of the given rows, of all passes."""
        return HeadOutput(*(part if part is None else part.index_select(-2, rows) for part in self._all_rows()))

    def _all_rows(self) -> HeadOutput:
        """Return the outputs of all passes in one."""
        columns = zip(*self.outputs, strict=True)
        return HeadOutput(*(None if parts[0] is None else torch.cat(parts, dim=-2) for parts in columns))

    def _select(self) -> Proposal:
        """Return the tree of the best candidates; reused ones have their own proposer."""
        merged = torch.cat(self.taken_over)
        number = self.head.num_experts + self.head.has_contrastive_branch
        candidates = Candidates.joined(self.levels)
        self.levels = [replace(candidates, proposers=torch.where(merged, number, candidates.proposers))]
        return super()._select()


def graph_drafter(head: LayerHead, info: dict | None = None, shared: int = SHARED_TOKENS) -> HeadDrafter:
    """Return a drafter that drafts shared runs once; `shared` as in `GraphGrower`."""
    return HeadDrafter(head, info, partial(GraphGrower, shared=shared), (*experts_of(head), MERGED))


METHOD = head_method(
    graph_drafter,
    LAYERS,
    name="gsd",
    title="GSD",
    sentence="Drafts runs of words that several branches share only once.",
    paper="2407.16207",
    proposers=(*proposers_of(2, decoupled=False, contrastive=True), MERGED),
)
