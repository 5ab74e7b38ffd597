"""EAGLE-2 (arXiv 2406.16858): one layer drafts from its own features; its confidence shapes the tree.

Jakiro grows its trees by the same rule. Only the head differs: a dense layer instead of experts, with the same number
of parameters if both are trained for comparison.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.heads.eagle import EAGLE

PROPOSERS = (Proposer("layer", "Draft layer", "One dense layer that goes on with its own features."),)
dense_drafter = partial(HeadDrafter, proposers=PROPOSERS)

METHOD = head_method(
    dense_drafter,
    Needs(head=(EAGLE.name,)),
    name="eagle2",
    title="EAGLE-2",
    sentence="A small dense layer drafts a tree from its own features; the target checks it in one pass.",
    paper="2406.16858",
    proposers=PROPOSERS,
    trains={},
)
