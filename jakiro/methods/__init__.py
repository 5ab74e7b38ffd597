"""The drafting methods, one file each. To add one, implement `jakiro/drafting/base.py` in a new file here (the shortest
example is `plain.py`) and register it in `METHODS` below; that is all it takes to have it everywhere.
"""

from jakiro.config import TreeConfig
from jakiro.drafting.base import Method
from jakiro.drafting.merged import merged
from jakiro.methods import (
    aded,
    best,
    distillspec,
    eagle2,
    eagle3,
    exit,
    gsd,
    gumiho,
    jakiro,
    mcsd,
    mcsd_improved,
    mcsd_replacing,
    medusa,
    parallelspec,
    plain,
    prompt_lookup,
    recycling,
    s2d,
    skip,
)

PLAIN, DEFAULT = plain.METHOD, jakiro.METHOD
WITH_COPIES = merged(
    DEFAULT,
    prompt_lookup.METHOD,
    "Jakiro's trees, with what followed the same words earlier in the text.",
    aliases=(f"{DEFAULT.name}+{prompt_lookup.METHOD.aliases[0]}",),
)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        PLAIN,
        DEFAULT,
        WITH_COPIES,
        prompt_lookup.METHOD,
        recycling.METHOD,
        aded.METHOD,
        mcsd.METHOD,
        mcsd_improved.METHOD,
        mcsd_replacing.METHOD,
        gsd.METHOD,
        eagle2.METHOD,
        eagle3.METHOD,
        parallelspec.METHOD,
        gumiho.METHOD,
        medusa.METHOD,
        skip.METHOD,
        exit.METHOD,
        distillspec.METHOD,
        s2d.METHOD,
        best.METHOD,
    )
}

# What drafts with a head of each kind where nothing else is asked for
HEAD_DRAFTERS = {
    "mixture": jakiro.HeadDrafter,
    "dense": eagle2.dense_drafter,
    "eagle3": eagle3.fused_drafter,
    "masks": parallelspec.masked_drafter,
    "staged": gumiho.staged_drafter,
    "mlps": medusa.parallel_drafter,
    "stacked": exit.exit_drafter,
    "distilled": distillspec.distilled_drafter,
    "nested": s2d.nested_drafter,
}
_BY_ALIAS = {alias: method for method in METHODS.values() for alias in method.aliases}


def method_named(name: str, tree: TreeConfig | None = None) -> Method:
    """The method of this name or alias; the default one with `TreeConfig(context=True)` also copies.

    Raises:
        ValueError: there is none of this name.
    """
    method = METHODS.get(name) or _BY_ALIAS.get(name)
    if method is None:
        raise ValueError(f"Unknown method {name!r}; choose one of {', '.join(METHODS)}.")
    return WITH_COPIES if method is DEFAULT and tree is not None and tree.context else method
