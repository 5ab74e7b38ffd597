"""A kind of draft head and its method: one matrix per level reads the target's last feature."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from jakiro.drafters.base import Needs
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.drafters.parallel import ProductGrower, row_proposers
from jakiro.heads.base import FeatureHead
from jakiro.heads.config import DraftConfig, count
from jakiro.heads.kind import HeadKind
from jakiro.heads.learning import fit, later


@dataclass(frozen=True, kw_only=True)
class StraightConfig(DraftConfig):
    num_levels: int = count(3)
    kind = "straight"


class StraightHead(FeatureHead):
    def __init__(self, config):
        super().__init__(config)
        size = config.hidden_size
        self.maps = nn.ModuleList(nn.Linear(size, size) for _ in range(config.num_levels))

    @property
    def levels(self):
        return len(self.maps)

    def forward(self, features):
        return torch.stack([matrix(features) for matrix in self.maps])


def levels(head, ids, features):
    for number, output in enumerate(head(features)):
        yield later(output, number)


@torch.no_grad()
def start(head, texts, seed):
    last = head.levels
    rows = torch.cat([features[:-last] for _, features in texts])
    for number, matrix in enumerate(head.maps, start=1):
        fit(matrix, rows, torch.cat([features[number : len(features) - last + number] for _, features in texts]))


STRAIGHT = HeadKind(config=StraightConfig, network=StraightHead, levels=levels, start=start)
PROPOSERS = row_proposers("map", "Matrix", "Predicts token {number} after the last one.", StraightConfig.num_levels)
METHODS = [
    head_method(
        partial(HeadDrafter, grower=ProductGrower, proposers=PROPOSERS, has_evidence=False),
        Needs(head=(STRAIGHT.name,)),
        name="straight",
        title="Straight",
        sentence="One matrix per level predicts all following tokens at once.",
        paper=None,
        proposers=PROPOSERS,
        kind=STRAIGHT,
        trains={},
    )
]
