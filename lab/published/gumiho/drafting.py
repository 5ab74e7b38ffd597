"""Gumiho (arXiv 2503.10135): two serial levels, then MLPs for all deeper levels at once.

With the paper's full tree attention, the leaf of a short path attends to a node of another branch, whose logits then
decide the token after the leaf. This changes the text, so all candidates here are real nodes with their own ancestors
and row.
"""

from functools import partial

import torch
from torch import Tensor

from jakiro.drafters.base import Needs, Proposal, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.drafters.parallel import row_proposers
from jakiro.drafters.tree_growth import TreeGrower
from jakiro.heads.layers import row_output
from lab.published.gumiho import GUMIHO
from lab.published.gumiho.network import SERIAL

MLPS = 3


def proposers_of(count: int) -> tuple[Proposer, ...]:
    """Return proposers for the two passes of the layers and for `count` MLPs."""
    serial = row_proposers("transformer", "Transformer", "Pass {number} of the layers, after the level above.", SERIAL)
    return (*serial, *row_proposers("mlp", "MLP", "MLP {number} of the pass for all deeper levels.", count))


class StagedGrower(TreeGrower):
    """Grows two levels serially; MLPs give each selected node of the second level candidates for every deeper level."""

    by_level = True

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.last_expanded = min(self.depth - 1, SERIAL - 1)

    def grow(self) -> Proposal:
        frontier = self._grow_serially()
        num_further = min(self.depth - SERIAL, self.head.config.num_mlps)
        if num_further > 0 and len(self.levels) == SERIAL and frontier.shape[0]:
            self._add_further(frontier, num_further)
        return self._select()

    def _add_further(self, frontier: Tensor, num_further: int) -> None:
        """Add the levels of the MLPs, which read tokens and features of each frontier node and of its parent."""
        first, second = self.levels
        own_rows = self._rows_in_pass(frontier)
        parents = second.parents[frontier] - 1
        root, outputs = self.outputs[0].features[0], self.outputs[1].features[0]
        above = self._read(first.token_ids[parents], root.expand(frontier.shape[0], -1))
        features = self.head.further(above, self._read(second.token_ids[frontier], outputs[own_rows]), num_further)
        rows = torch.arange(frontier.shape[0], device=self.device)
        self.first_rows.append(self.first_rows[-1] + outputs.shape[0])
        self.outputs.append(row_output(features[:1]))
        for depth, scores in enumerate(self._scaled(features), SERIAL + 1):
            children = self._children(scores, depth).at(rows)
            self._add(children, frontier, rows + self.first_rows[-1])
            frontier = self._worth_expanding(self._best(self.levels[-1]))
            if not frontier.shape[0]:
                break
            rows = self._rows_in_pass(frontier)

    def _read(self, token_ids: Tensor, features: Tensor) -> Tensor:
        """Return (nodes, hidden), the input of the layers for a token and the feature from which it was chosen."""
        inputs = torch.cat([self.head.embed(token_ids), features], dim=-1)
        return self.head.fc(inputs)


staged_drafter = partial(
    HeadDrafter, grower=StagedGrower, proposers=lambda config: proposers_of(config.num_mlps), has_evidence=False
)

METHOD = head_method(
    staged_drafter,
    Needs(head=(GUMIHO.name,)),
    name="gumiho",
    title="Gumiho",
    sentence="Two layers draft two levels one after the other; small networks draft all deeper levels at once.",
    paper="2503.10135",
    proposers=proposers_of(MLPS),
    trains={"num_mlps": MLPS},
    kind=GUMIHO,
)
