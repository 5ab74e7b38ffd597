"""Config of a Gumiho head."""

from dataclasses import dataclass

from jakiro.heads.config import count
from jakiro.heads.layer_config import LayerConfig


@dataclass(frozen=True, kw_only=True)
class GumihoConfig(LayerConfig):
    """Two dense layers, then MLPs for the levels after the second.

    Attributes:
        num_mlps: number of MLPs; each predicts one level without waiting for the level above.
        published_blocks: residual blocks per MLP in the form published by the paper's authors, for drafting only; 0 for
            our form.
    """

    num_layers: int = count(2)
    num_mlps: int = count(3)
    published_blocks: int = count(0, least=0)
    kind = "gumiho"

    def describe(self) -> str:
        return f"{super().describe()} and {self.num_mlps} MLPs for deeper levels, as in Gumiho"

    @property
    def only_drafts(self) -> bool:
        return self.published_blocks > 0
