"""A Medusa head's config.json."""

from dataclasses import dataclass

from jakiro.config import is_count
from jakiro.heads.config import DraftConfig, need


@dataclass(frozen=True, kw_only=True)
class MedusaConfig(DraftConfig):
    """MLPs alone.

    Attributes:
        num_mlps: each predicts a level without waiting for the level above.
        published_blocks: residual blocks of MLPs in the form that the paper's authors publish, for drafting only; 0
            for ours.
    """

    num_mlps: int = 5
    published_blocks: int = 0
    kind = "medusa"

    def __post_init__(self) -> None:
        super().__post_init__()
        need(is_count(self.num_mlps, 1), f"num_mlps must be 1 or more, not {self.num_mlps}")
        need(is_count(self.published_blocks, 0), f"published_blocks must be 0 or more, not {self.published_blocks}")

    @property
    def only_drafts(self) -> bool:
        return self.published_blocks > 0

    def describe(self) -> str:
        return f"{self.num_mlps} MLPs that read the target's feature, as Medusa's"
