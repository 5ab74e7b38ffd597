"""A Medusa head's config.json."""

from dataclasses import dataclass

from jakiro.heads.config import DraftConfig, count


@dataclass(frozen=True, kw_only=True)
class MedusaConfig(DraftConfig):
    """MLPs alone.

    Attributes:
        num_mlps: each predicts a level without waiting for the level above.
        published_blocks: residual blocks of MLPs in the form that the paper's authors publish, for drafting only; 0
            for ours.
    """

    num_mlps: int = count(5)
    published_blocks: int = count(0, least=0)
    kind = "medusa"

    def describe(self) -> str:
        return f"{self.num_mlps} MLPs that read the target's feature, as Medusa's"

    @property
    def only_drafts(self) -> bool:
        return self.published_blocks > 0
