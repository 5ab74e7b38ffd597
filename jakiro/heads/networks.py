"""Which network a head's config means."""

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
from jakiro.heads.eagle3 import Eagle3Config, Eagle3Head
from jakiro.heads.exit import ExitHead, NestedHead
from jakiro.heads.gumiho import StagedHead
from jakiro.heads.jakiro import JakiroHead
from jakiro.heads.medusa import MedusaHead
from jakiro.heads.parallelspec import MaskedHead

NETWORKS = {
    "layers": JakiroHead,
    "masks": MaskedHead,
    "staged": StagedHead,
    "mlps": MedusaHead,
    "stacked": ExitHead,
    "nested": NestedHead,
    "eagle3": Eagle3Head,
}


def config_from(values: dict) -> DraftConfig:
    """The config of a config.json in our own form; errors are `DraftConfig.from_dict`'s."""
    kind = Eagle3Config if isinstance(values, dict) and values.get("network") == "eagle3" else DraftConfig
    return kind.from_dict(values)


def make_head(config: DraftConfig) -> DraftHead:
    """A head with random weights."""
    return NETWORKS[config.network](config)
