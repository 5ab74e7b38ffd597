"""S2D: a draft with exits nested in one another; confidence decides how much of it a step runs (arXiv 2407.01955).

The paper trains the sub-models of one draft together, sorted by size, and serves several targets with it, each with a
depth of its own. Here the exits are the target's layers 2 and 4 and the layer of `exit.py`. What is committed is read
to the end, since deeper keys would be missing later; the first exit that is sure of the root's row drafts all levels,
and where none is, the deepest drafts one level only.
"""

from dataclasses import replace

import torch

from jakiro.drafters.base import Needs, Proposal, Proposer
from jakiro.drafters.head import HeadDrafter, head_method
from jakiro.drafters.tree_growth import Children, TreeGrower
from jakiro.heads.calibration import Calibration
from jakiro.heads.kind import HeadKind
from jakiro.heads.layers import row_output
from lab.layers.exit_head import NestedConfig, NestedHead
from lab.methods.exit import LAYERS_BELOW

EXITS = (2, LAYERS_BELOW)
# An exit is sure where it gives its first guess at least this chance
THRESHOLD = 0.5
KIND = HeadKind(config=NestedConfig, network=NestedHead)


def proposers_of(exits: tuple[int, ...]) -> tuple[Proposer, ...]:
    """An exit after each of these layers, and the own layer's."""
    early = [
        Proposer(f"exit_{layer}", f"Exit {layer}", f"Left after {layer} of the target's layers.") for layer in exits
    ]
    sentence = "The trained layer on top of the target's first ones."
    return (*early, Proposer(f"exit_{exits[-1] + 1}", f"Exit {exits[-1] + 1}", sentence))


class NestedGrower(TreeGrower):
    """Grows a tree with the first exit that gives its most likely token after the root at least `THRESHOLD`."""

    def __init__(self, head, cache, root, root_token, sampling, tree_config, *more) -> None:
        probabilities = head.logits(root.expert_outputs[:, 0, 0]).softmax(-1).amax(-1).tolist()
        confident = [number for number, probability in enumerate(probabilities) if probability >= THRESHOLD]
        self.exit = confident[0] if confident else len(probabilities) - 1
        root = row_output(root.expert_outputs[self.exit])
        super().__init__(head, cache, root, root_token, sampling, tree_config, *more)
        if not confident:
            self.last_expanded = 0
        # Fitted for each exit in the place of a level
        prefix, numbers = f"main/{self.exit + 1}/", self.ranking.calibration.numbers
        fitted = {name.removeprefix(prefix): number for name, number in numbers.items() if name.startswith(prefix)}
        levels = range(1, self.depth + 1)
        numbers = {f"main/{depth}/{kind}": number for depth in levels for kind, number in fitted.items()}
        self.ranking.calibration = Calibration(numbers, sampling)

    def _run(self, embeddings, features, positions, mask):
        return self.head.leave_at(self.exit, embeddings, positions, mask, self.cache)

    def _select(self) -> Proposal:
        """The tree says how deep it really is, so that one level is a chain where only chains are scored."""
        proposal = super()._select()
        return replace(proposal, tree=replace(proposal.tree, max_depth=len(self.levels)))

    def _children(self, scores, depth: int, contrastive: bool = False) -> Children:
        children = super()._children(scores, depth, contrastive)
        return children._replace(proposers=torch.full_like(children.proposers, self.exit))


def nested_drafter(head: NestedHead, info: dict | None = None) -> HeadDrafter:
    """Return a drafter with nested exits."""
    return HeadDrafter(head, info, NestedGrower, proposers_of(head.config.exit_layers), has_evidence=False)


METHOD = head_method(
    nested_drafter,
    Needs(head=(KIND.name,), layers=True),
    name="s2d",
    title="S2D",
    sentence="A draft of nested exits from the target's first layers; the first one that is sure drafts.",
    paper="2407.01955",
    proposers=proposers_of(EXITS),
    kind=KIND,
    trains={"exit_layers": EXITS},
)
