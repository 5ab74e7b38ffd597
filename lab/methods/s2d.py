"""S2D: a draft with nested exits; its confidence decides how many layers a step runs (arXiv 2407.01955).

The paper trains the sub-models of one draft together, sorted by size, and serves several targets with it, each with its
own depth. Here the exits are the target's layers 2 and 4 and the layer of `exit.py`. Committed tokens run through all
layers, because deeper keys would be missing later. The first confident exit after the root drafts all levels; without
a confident exit, the deepest one drafts a single level.
"""

from dataclasses import replace
from functools import partial

import torch

from jakiro.drafters.base import Proposal, Proposer
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.tree_growth import Children, TreeGrower
from jakiro.heads.calibration import Calibration
from jakiro.heads.layers import row_output
from lab.layers.exit_head import NestedConfig, NestedHead
from lab.methods.exit import LAYERS_BELOW, exit_method

EXITS = (2, LAYERS_BELOW)
# An exit is confident if its most likely token has at least this probability
THRESHOLD = 0.5


def proposers_of(exits: tuple[int, ...]) -> tuple[Proposer, ...]:
    """Return a proposer for the exit after each of these layers, and one for the trained layer."""
    early = [
        Proposer(f"exit_{layer}", f"Exit {layer}", f"The exit after {layer} layers of the target.") for layer in exits
    ]
    sentence = "The trained layer on top of the target's first layers."
    return (*early, Proposer(f"exit_{exits[-1] + 1}", f"Exit {exits[-1] + 1}", sentence))


class NestedGrower(TreeGrower):
    """Grows a tree with the first exit whose most likely token after the root has at least probability `THRESHOLD`."""

    def __init__(self, head, cache, root, root_token, inputs) -> None:
        probabilities = head.logits(root.expert_outputs[:, 0, 0]).softmax(-1).amax(-1).tolist()
        confident = [number for number, probability in enumerate(probabilities) if probability >= THRESHOLD]
        self.exit = confident[0] if confident else len(probabilities) - 1
        root = row_output(root.expert_outputs[self.exit])
        super().__init__(head, cache, root, root_token, inputs)
        if not confident:
            self.last_expanded = 0
        # The calibration of an exit is stored under the number of a level
        prefix, numbers = f"main/{self.exit + 1}/", self.ranking.calibration.numbers
        fitted = {name.removeprefix(prefix): number for name, number in numbers.items() if name.startswith(prefix)}
        levels = range(1, self.depth + 1)
        numbers = {f"main/{depth}/{kind}": number for depth in levels for kind, number in fitted.items()}
        self.ranking.calibration = Calibration(numbers, inputs.sampling)

    def _run(self, embeddings, features, positions, mask):
        return self.head.leave_at(self.exit, embeddings, positions, mask, self.cache)

    def _select(self) -> Proposal:
        """Set the real depth of the tree, so that one level is a chain if only chains are scored."""
        proposal = super()._select()
        return replace(proposal, tree=replace(proposal.tree, max_depth=len(self.levels)))

    def _children(self, scores, depth: int, contrastive: bool = False) -> Children:
        children = super()._children(scores, depth, contrastive)
        return children._replace(proposers=torch.full_like(children.proposers, self.exit))


nested_drafter = partial(
    HeadDrafter, grower=NestedGrower, proposers=lambda config: proposers_of(config.exit_layers), has_evidence=False
)

METHOD = exit_method(
    "s2d",
    NestedConfig,
    proposers_of(EXITS),
    NestedHead,
    EXITS,
    nested_drafter,
    title="S2D",
    sentence="A draft of nested exits from the target's first layers; the first confident exit drafts.",
    paper="2407.01955",
)
