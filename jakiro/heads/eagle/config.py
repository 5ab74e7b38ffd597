"""An EAGLE head's config.json."""

from dataclasses import dataclass

from jakiro.heads.layer_config import LayerConfig


@dataclass(frozen=True, kw_only=True)
class EagleConfig(LayerConfig):
    """One dense layer."""

    kind = "eagle"

    def describe(self) -> str:
        return f"{super().describe()}, as EAGLE's"
