"""Gumiho (arXiv 2503.10135): two serial levels, which decide most, then MLPs for all further levels at once.

The paper's full tree attention lets the leaf of a short path see a node of another branch, whose logits then decide
what follows the leaf. That changes the text, so all candidates here are real nodes, with their own ancestors and row.
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
    """The layers' two passes, and `count` MLPs."""
    serial = row_proposers(
        "transformer", "Transformer", "Pass {number} of the layers, which reads the level above.", SERIAL
    )
    return (*serial, *row_proposers("mlp", "MLP", "MLP {number} of the pass for all further levels.", count))


class StagedGrower(TreeGrower):
    """Grows two levels serially; MLPs give each kept node of the second one a list for every further level."""

    by_level = True

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.last_expanded = min(self.depth - 1, SERIAL - 1)

    def grow(self) -> Proposal:
        frontier = self._grow_serially()
        further = min(self.depth - SERIAL, self.head.config.num_mlps)
        if further > 0 and len(self.levels) == SERIAL and frontier.shape[0]:
            self._add_further(frontier, further)
        return self._select()

    def _add_further(self, frontier: Tensor, further: int) -> None:
        """The levels of the MLPs, which know tokens and features of each frontier node and of its parent."""
        first, second = self.levels
        own = self._rows_in_pass(frontier)
        parents = second.parents[frontier] - 1
        root, outputs = self.outputs[0].features[0], self.outputs[1].features[0]
        above = self._read(first.token_ids[parents], root.expand(frontier.shape[0], -1))
        features = self.head.further(above, self._read(second.token_ids[frontier], outputs[own]), further)
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
        """(nodes, hidden), what the layers read of a token and the feature that it was chosen from."""
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
    sentence="Two layers draft two levels one after the other, small networks all further levels at once.",
    paper="2503.10135",
    proposers=proposers_of(MLPS),
    trains={"num_mlps": MLPS},
    kind=GUMIHO,
)
