"""A draft tree at fixed addresses, padded to a row bucket, which captured passes write and read."""

import torch
from torch import Tensor

from jakiro.core.tree import FLOAT_COLUMNS, INT_COLUMNS, DraftTree

MAX_LEVELS = 16
PAD_DEPTH = -1

# Names and widths of the evidence in the trees of one answer
EvidenceSchema = tuple[tuple[str, int], ...]


class StaticTree:
    """Buffers for trees of at most `rows` nodes.

    A pad is a node of depth −1 below the root: it is scored and never accepted.

    Attributes:
        int_columns: (6, rows) int64.
        float_columns: (2, rows) float32.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.rows, self.device = rows, device
        self.int_columns = torch.zeros((len(INT_COLUMNS), rows), dtype=torch.int64, device=device)
        self.float_columns = torch.zeros((len(FLOAT_COLUMNS), rows), device=device)
        columns = (*self.int_columns.unbind(0), *self.float_columns.unbind(0))
        self._columns = dict(zip((*INT_COLUMNS, *FLOAT_COLUMNS), columns, strict=True))
        self._columns["parents"][0] = -1
        self._evidence: dict[tuple[str, int], Tensor] = {}

    @property
    def buffers(self) -> list[Tensor]:
        return [self.int_columns, self.float_columns, *self._evidence.values()]

    @property
    def first_address(self) -> int:
        """Address of the token ids, by which a tree in these buffers is recognised."""
        return self._columns["token_ids"].data_ptr()

    def evidence(self, schema: EvidenceSchema) -> dict[str, Tensor]:
        """Return the buffers of the evidence, (rows, width) each; allocated on first use."""
        for name, width in schema:
            if (name, width) not in self._evidence:
                self._evidence[name, width] = torch.full((self.rows, width), torch.nan, device=self.device)
        return {name: self._evidence[name, width] for name, width in schema}

    def write(self, tree: DraftTree, rows: int, schema: EvidenceSchema) -> None:
        """Copy a tree into the first `rows` rows; rows after its nodes become pads."""
        nodes = tree.num_nodes
        for names, columns in ((INT_COLUMNS, self.int_columns), (FLOAT_COLUMNS, self.float_columns)):
            torch.stack([getattr(tree, name) for name in names], out=columns[:, :nodes])
        for name, buffer in self.evidence(schema).items():
            values = tree.evidence.get(name)
            if values is None:
                buffer[:nodes].fill_(torch.nan)
            else:
                buffer[:nodes].copy_(values)
        if nodes < rows:
            for name, value in (("token_ids", 0), ("parents", 0), ("depths", PAD_DEPTH)):
                self._columns[name][nodes:rows].fill_(value)

    def first(self, rows: int, max_depth: int, schema: EvidenceSchema) -> DraftTree:
        """Return the first rows as a tree: its nodes, or with pads the rows of a pass over a row bucket."""
        columns = {name: column[:rows] for name, column in self._columns.items()}
        evidence = {name: buffer[:rows] for name, buffer in self.evidence(schema).items()}
        return DraftTree(**columns, evidence=evidence, max_depth=max_depth)
