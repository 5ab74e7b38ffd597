"""A Gumiho head's config.json."""

from dataclasses import dataclass

from jakiro.heads.config import MlpConfig, count
from jakiro.heads.layer_config import LayerConfig


@dataclass(frozen=True, kw_only=True)
class GumihoConfig(MlpConfig, LayerConfig):
    """Two dense layers, then MLPs for the levels after the second."""

    num_layers: int = count(2)
    num_mlps: int = count(3)
    kind = "gumiho"

    def describe(self) -> str:
        return f"{super().describe()} and {self.num_mlps} MLPs for further levels, as Gumiho's"
