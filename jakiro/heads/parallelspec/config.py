"""A ParallelSpec head's config.json."""

from dataclasses import dataclass

from jakiro.heads.config import count
from jakiro.heads.layer_config import LayerConfig


@dataclass(frozen=True, kw_only=True)
class ParallelSpecConfig(LayerConfig):
    """One dense layer with mask tokens.

    Attributes:
        num_masks: each predicts a level without waiting for the level above.
    """

    num_masks: int = count(4)
    kind = "parallelspec"

    def describe(self) -> str:
        return f"{super().describe()} with {self.num_masks} mask tokens, as ParallelSpec's"
