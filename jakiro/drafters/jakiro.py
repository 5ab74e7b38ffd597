"""Jakiro: trees of a draft head with a mixture of experts (arXiv 2502.06282); every node has its expert."""

from jakiro.drafters.experts import proposers_of
from jakiro.drafters.head import HeadDrafter, head_method

METHOD = head_method(
    HeadDrafter,
    name="jakiro",
    title="Jakiro",
    sentence="A small head with a mixture of experts drafts a tree; the target checks it in one pass.",
    paper="2502.06282",
    proposers=proposers_of(2, decoupled=False, contrastive=True),
    trains={},
)
