"""The registry of kinds of draft heads; external methods register more kinds, see `Methods.kinds`."""

from jakiro.config import require
from jakiro.heads.base import DraftHead
from jakiro.heads.config import KIND, DraftConfig
from jakiro.heads.dflash import DFLASH
from jakiro.heads.eagle import EAGLE
from jakiro.heads.eagle3 import EAGLE3
from jakiro.heads.jakiro import JAKIRO
from jakiro.heads.kind import HeadKind, Kinds
from jakiro.heads.medusa import MEDUSA
from jakiro.heads.parallelspec import PARALLELSPEC

KINDS: Kinds = {
    kind.name: kind
    for kind in (
        JAKIRO,
        DFLASH,
        EAGLE,
        EAGLE3,
        PARALLELSPEC,
        MEDUSA,
    )
}


def kind_named(name: object, kinds: Kinds = KINDS) -> HeadKind:
    """Return the kind of this name.

    Raises:
        ValueError: the name is unknown.
    """
    require(
        isinstance(name, str) and name in kinds,
        f"The kind {name!r} of this draft head is unknown; known kinds are {', '.join(kinds)}. Load the module that "
        "defines it with --methods-from.",
    )
    return kinds[name]


def config_from(values: dict, kinds: Kinds = KINDS) -> DraftConfig:
    """Return the config of a config.json in the format of this package.

    Raises:
        ValueError: the kind is unknown, or a field is missing, unknown or invalid.
    """
    return kind_named(values.get(KIND), kinds).config.from_dict(values)


def make_head(config: DraftConfig, kinds: Kinds = KINDS) -> DraftHead:
    """Return a head with random weights.

    Raises:
        ValueError: the kind of the config is unknown.
    """
    return kind_named(config.kind, kinds).network(config)
