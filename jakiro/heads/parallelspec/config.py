"""A ParallelSpec head's config.json."""

from dataclasses import dataclass

from jakiro.heads.config import count
from jakiro.heads.layer_config import LayerConfig


@dataclass(frozen=True, kw_only=True)
class ParallelSpecConfig(LayerConfig):
    """Config of a dense layer with mask tokens.

    Attributes:
        num_masks: Number of mask tokens; each predicts a level independently of the level above.
    """

    num_masks: int = count(4)
    kind = "parallelspec"

    def describe(self) -> str:
        return f"{super().describe()} with {self.num_masks} mask tokens, as ParallelSpec's"
