"""A Medusa head's config.json."""

from dataclasses import dataclass

from jakiro.heads.config import MlpConfig, count


@dataclass(frozen=True, kw_only=True)
class MedusaConfig(MlpConfig):
    """MLPs alone."""

    num_mlps: int = count(5)
    kind = "medusa"

    def describe(self) -> str:
        return f"{self.num_mlps} MLPs that read the target's feature, as Medusa's"
