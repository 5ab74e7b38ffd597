"""EAGLE-3 (arXiv 2503.01840): layers that read three of the target's hidden states, and a draft vocabulary.

Trees grow by EAGLE-2's rule, as Jakiro's do; only the head differs. Heads are loaded from published files.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.heads.eagle3 import EAGLE3

PROPOSERS = (Proposer("layer", "Draft layer", "One layer that reads three hidden states of the target, then its own."),)
fused_drafter = partial(HeadDrafter, proposers=PROPOSERS)

METHOD = head_method(
    fused_drafter,
    Needs(head=(EAGLE3.name,)),
    name="eagle3",
    title="EAGLE-3",
    sentence="A small layer reads three hidden states of the target and drafts a tree; the target checks it.",
    paper="2503.01840",
    proposers=PROPOSERS,
    asks="a published EAGLE-3 head made for the target, given with --head",
)
