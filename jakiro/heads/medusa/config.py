"""A Medusa head's config.json."""

from dataclasses import dataclass

from jakiro.heads.config import DraftConfig, count


@dataclass(frozen=True, kw_only=True)
class MedusaConfig(DraftConfig):
    """Config of a Medusa head, which consists of MLPs.

    Attributes:
        num_mlps: Number of MLPs; each predicts a level independently of the level above.
        published_blocks: Number of residual blocks of an MLP in the form that the paper's authors publish, which is
            supported for drafting only; 0 for the form of this package.
    """

    num_mlps: int = count(5)
    published_blocks: int = count(0, least=0)
    kind = "medusa"

    def describe(self) -> str:
        return f"{self.num_mlps} MLPs that read the target's feature, as Medusa's"

    @property
    def only_drafts(self) -> bool:
        return self.published_blocks > 0
