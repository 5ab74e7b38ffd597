"""A Jakiro head's config.json."""

from dataclasses import dataclass

from jakiro.heads.config import count, need
from jakiro.heads.layer_config import LayerConfig

FUSIONS = ("summed", "decoupled")


@dataclass(frozen=True, kw_only=True)
class JakiroConfig(LayerConfig):
    """One layer with a mixture of experts.

    Attributes:
        fusion: "summed" adds the experts and has a contrastive branch with two of them (arXiv 2502.06282); with
            "decoupled" each expert has its own distribution.
        num_experts: 1 or 2.
    """

    fusion: str = "summed"
    num_experts: int = count(2)
    kind = "jakiro"

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.fusion in FUSIONS, f"fusion must be one of {FUSIONS}, not {self.fusion!r}")
        need(self.num_experts <= 2, f"num_experts must be 1 or 2, not {self.num_experts}")

    @property
    def contrastive(self) -> bool:
        """True if one pass also predicts the position after the next one (CEPD)."""
        return self.fusion == "summed" and self.num_experts == 2

    def describe(self) -> str:
        experts = "1 expert" if self.num_experts == 1 else f"{self.num_experts} experts"
        return f"Jakiro, {self.fusion} fusion, {experts} of inner width {self.expert_intermediate_size}"
