"""A ParallelSpec head's config.json."""

from dataclasses import dataclass

from jakiro.config import is_count
from jakiro.heads.config import need
from jakiro.heads.layer_config import LayerConfig


@dataclass(frozen=True, kw_only=True)
class ParallelSpecConfig(LayerConfig):
    """One dense layer with mask tokens.

    Attributes:
        num_masks: each predicts a level without waiting for the level above.
    """

    num_masks: int = 4
    kind = "parallelspec"

    def __post_init__(self) -> None:
        super().__post_init__()
        need(is_count(self.num_masks, 1), f"num_masks must be 1 or more, not {self.num_masks}")

    def describe(self) -> str:
        return f"{super().describe()} with {self.num_masks} mask tokens, as ParallelSpec's"
