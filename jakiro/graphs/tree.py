"""A draft tree at fixed addresses, padded to a row bucket, so that captured passes can write and read it."""

from dataclasses import fields

import torch
from torch import Tensor

from jakiro.core.tree import DraftTree

MAX_LEVELS = 16
MAX_BUCKETS = 16
PAD_DEPTH = -1
_MATRICES = ("router_weights", "contributions")


class StaticTree:
    """Buffers for trees of at most `rows` nodes.

    A pad is a node of depth −1 below the root: it is scored and never accepted.

    Args:
        num_experts: columns of router weights and contributions.
    """

    def __init__(self, rows: int, num_experts: int, device: torch.device) -> None:
        self.rows, self.num_experts = rows, num_experts
        self.expected = torch.zeros((MAX_LEVELS, MAX_BUCKETS), device=device)
        root = DraftTree.root_only(torch.zeros(1, dtype=torch.int64, device=device))
        self._columns: dict[str, Tensor] = {}
        for field in fields(DraftTree):
            if field.name not in ("expected", "max_depth"):
                like = getattr(root, field.name)
                shape = (rows, num_experts) if field.name in _MATRICES else (rows,)
                self._columns[field.name] = torch.zeros(shape, dtype=like.dtype, device=device)

    @property
    def first_address(self) -> int:
        """Where the token ids lie: a tree whose ids lie there is this one."""
        return self._columns["token_ids"].data_ptr()

    def write(self, tree: DraftTree, rows: int) -> None:
        """Copies a tree into the first `rows` rows; those behind its nodes become pads."""
        nodes, experts = tree.router_weights.shape
        for name, column in self._columns.items():
            source = getattr(tree, name)
            (column[:nodes, :experts] if name in _MATRICES else column[:nodes]).copy_(source)
        levels, buckets = tree.expected.shape
        self.expected[:levels, :buckets].copy_(tree.expected)
        for name, value in (("token_ids", 0), ("parents", 0), ("depths", PAD_DEPTH)):
            self._columns[name][nodes:rows].fill_(value)

    def padded(self, rows: int, max_depth: int) -> DraftTree:
        """What a pass over `rows` rows sees."""
        return DraftTree(
            **{name: column[:rows] for name, column in self._columns.items()},
            expected=self.expected,
            max_depth=max_depth,
        )

    def shown(self, nodes: int, experts: int, expected_shape: tuple[int, int], max_depth: int) -> DraftTree:
        """The tree itself: its nodes, and as many experts, levels and tree sizes as it tells about."""
        columns = {
            name: column[:nodes, :experts] if name in _MATRICES else column[:nodes]
            for name, column in self._columns.items()
        }
        levels, buckets = expected_shape
        return DraftTree(**columns, expected=self.expected[:levels, :buckets], max_depth=max_depth)
