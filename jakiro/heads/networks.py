"""Which network a head's config means."""

from collections.abc import Mapping

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
from jakiro.heads.eagle3 import Eagle3Config, Eagle3Head
from jakiro.heads.gumiho import StagedHead
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.medusa import MedusaHead
from jakiro.heads.parallelspec import MaskedHead

NETWORKS = {
    "layers": LayerHead,
    "masks": MaskedHead,
    "staged": StagedHead,
    "mlps": MedusaHead,
    "states": Eagle3Head,
}


def config_from(values: dict) -> DraftConfig:
    """The config of a config.json in our own form; errors are `DraftConfig.from_dict`'s."""
    kind = Eagle3Config if isinstance(values, dict) and values.get("network") == "states" else DraftConfig
    return kind.from_dict(values)


def make_head(config: DraftConfig, networks: Mapping[str, type[DraftHead]] = NETWORKS) -> DraftHead:
    """A head with random weights.

    Args:
        networks: those that there are, by name; methods from outside bring further ones, see `Methods.networks`.

    Raises:
        ValueError: there is none of the config's name.
    """
    if config.network not in networks:
        raise ValueError(
            f"This draft head is a network {config.network!r}, known are {', '.join(networks)}; name the module that "
            "brings it with --methods-from."
        )
    return networks[config.network](config)
