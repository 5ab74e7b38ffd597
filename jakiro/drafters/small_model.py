"""A small language model drafts (arXiv 2211.17192): the target's family and tokenizer, fewer layers.

Trees grow by EAGLE-2's rule, ranked with the target's noise; a chain is a tree of width 1.
"""

from functools import partial

from jakiro.drafters.base import Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.heads.model_head import ModelConfig

PROPOSERS = (Proposer("small_model", "Draft model", "A small language model that reads the same tokens."),)
model_drafter = partial(HeadDrafter, proposers=PROPOSERS)

METHOD = head_method(
    model_drafter,
    Needs(head=(ModelConfig.kind,)),
    name="small_model",
    title="Draft model",
    sentence="A small model of the same family drafts a tree token by token; the target checks it.",
    paper="2211.17192",
    proposers=PROPOSERS,
    asks="a small model of the target's family, given with --draft-model",
)
