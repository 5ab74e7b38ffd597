"""Which network a head's config means."""

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
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
}


def make_head(config: DraftConfig) -> DraftHead:
    """A head with random weights."""
    return NETWORKS[config.network](config)
