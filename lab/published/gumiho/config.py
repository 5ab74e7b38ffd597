"""A Gumiho head's config.json."""

from dataclasses import dataclass

from jakiro.heads.config import count
from jakiro.heads.layer_config import LayerConfig


@dataclass(frozen=True, kw_only=True)
class GumihoConfig(LayerConfig):
    """Two dense layers, then MLPs for the levels after the second.

    Attributes:
        num_mlps: each predicts a level without waiting for the level above.
        published_blocks: residual blocks of MLPs in the form that the paper's authors publish, for drafting only; 0
            for ours.
    """

    num_layers: int = count(2)
    num_mlps: int = count(3)
    published_blocks: int = count(0, least=0)
    kind = "gumiho"

    def describe(self) -> str:
        return f"{super().describe()} and {self.num_mlps} MLPs for further levels, as Gumiho's"

    @property
    def only_drafts(self) -> bool:
        return self.published_blocks > 0
