"""Early exit: the target's first four layers and one trained layer draft, and the whole target verifies.

It replaces a small draft model where none exists. Draft & Verify and LayerSkip (arXiv 2309.08168, 2404.16710) also
draft by early exit; they add only an output function, this method adds one layer.
"""

from collections.abc import Callable
from functools import partial

from jakiro.drafters.base import Method, Needs, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.heads.kind import HeadKind
from lab.layers import exit_learning
from lab.layers.exit_head import ExitConfig, ExitHead

LAYERS_BELOW = 4
PROPOSERS = (Proposer("exit", "Early exit", "The target's first layers and one trained layer on top of them."),)


def exit_method(
    name: str,
    config: type[ExitConfig],
    proposers: tuple[Proposer, ...],
    network: type[ExitHead] = ExitHead,
    exit_layers: tuple[int, ...] = (LAYERS_BELOW,),
    drafter: Callable[..., HeadDrafter] | None = None,
    **about: str,
) -> Method:
    """Return a method whose heads `lab.training.exits` trains.

    Args:
        drafter: makes the drafter of a head; None makes one that drafts trees.
        about: title, sentence and paper of the method.
    """
    kind = HeadKind.of(config, network, exit_learning)
    return head_method(
        drafter or partial(HeadDrafter, proposers=proposers, has_evidence=False),
        Needs(head=(kind.name,), layers=True),
        name=name,
        kind=kind,
        proposers=proposers,
        trains={"exit_layers": exit_layers},
        asks=f"a head that `python -m lab.training.exits --method {name}` trains, given with --head",
        **about,
    )


METHOD = exit_method(
    "exit",
    ExitConfig,
    PROPOSERS,
    title="Early exit",
    sentence="The target's first four layers and one trained layer draft a tree; the whole target checks it.",
    paper="2404.16710",
)
