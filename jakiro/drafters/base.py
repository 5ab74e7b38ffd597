"""What a drafting method is: plain data about it, a drafter that keeps its weights, a session for one answer.

A method is one file in `jakiro/drafters/`. Acceptance never looks at the draft's probabilities, so any drafter is
lossless; how well it guesses decides the speed alone.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice

from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import NoiseSource
from jakiro.core.tree import DraftTree
from jakiro.core.verify import Outcome
from jakiro.drafters.candidates import Candidates, Chain
from jakiro.heads.base import DraftHead
from jakiro.heads.kind import HeadKind
from jakiro.heads.layers import HeadOutput
from jakiro.models.target import TargetModel


@dataclass(frozen=True, slots=True)
class Proposer:
    """One source of candidates, as traces and the page name it; its place in its method decides hue and shape.

    Attributes:
        id: stands in traces.
        label: one to three words. sentence: what it is, for a legend.
    """

    id: str
    label: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Needs:
    """What a method cannot do without.

    Attributes:
        head: kinds of draft head that it drafts with, see `DraftConfig.kind`, the best one first; none for no head.
        logits: the target's logits at all nodes of a step, refused ones too.
        layers: a target whose layers can run by themselves.
    """

    head: tuple[str, ...] = ()
    logits: bool = False
    layers: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """What is at hand when a method is loaded.

    Attributes:
        head: bound to the target, None where no head fits it.
        head_info: its "name", "sha256" and "precision" for traces.
        further: by kind of head, a function that reads another head for the target and returns it with its info.
    """

    target: TargetModel
    head: DraftHead | None = None
    head_info: dict | None = None
    further: Mapping[str, Callable[[], tuple[DraftHead, dict]]] = field(default_factory=dict)

    def kind_for(self, needs: Needs) -> str | None:
        """The kind of the head that suits these needs best, the first one if it suits; None where there is none."""
        own = None if self.head is None else self.head.config.kind
        if own in needs.head:
            return own
        return next((kind for kind in needs.head if kind in self.further), None)

    def head_for(self, needs: Needs) -> tuple[DraftHead, dict | None]:
        """The head of `kind_for`, which there must be, and its info."""
        kind = self.kind_for(needs)
        if self.head is not None and kind == self.head.config.kind:
            return self.head, self.head_info
        return self.further[kind]()


@dataclass(frozen=True, slots=True)
class Method:
    """A way to draft, as plain data and the function that loads it.

    Attributes:
        name: how users ask for it. aliases: older names of the same method.
        title: what people read. sentence: what it does, in one.
        paper: arXiv number, None where there is none.
        proposers: those it usually has; a loaded drafter has its own.
        load: makes the drafter.
        drafts: whether it drafts trees; if not, all its candidates need no draft pass.
        trains: fields of the config of heads that are trained for it; None where it has none of its own. Their kind is
            the first one that it needs.
        drafter: from a head of that kind, bound to its target, and the head's info: the drafter.
        kind: of such heads, where `heads.kinds` lacks it.
        asks: what users give it to draft with, and by which option; None where a head may be shipped or trained.
    """

    name: str
    title: str
    sentence: str
    paper: str | None
    proposers: tuple[Proposer, ...]
    needs: Needs
    load: "Callable[[Resources], Drafter]"
    aliases: tuple[str, ...] = ()
    drafts: bool = True
    trains: dict | None = None
    drafter: "Callable[..., Drafter] | None" = None
    kind: HeadKind | None = None
    asks: str | None = None

    def to_dict(self) -> dict:
        """Everything but the function, in JSON's types."""
        plain = {name: getattr(self, name) for name in ("name", "title", "sentence", "paper", "drafts")}
        proposers = [asdict(proposer) for proposer in self.proposers]
        needs = asdict(self.needs) | {"head": list(self.needs.head)}
        return plain | {"aliases": list(self.aliases), "proposers": proposers, "needs": needs}


def why_no_layers(target: TargetModel) -> str:
    """Why nothing can run some of this target's layers."""
    return f"Only layers of Llama's shape can run by themselves, and {target.name} has others"


def why_not(method: Method, resources: Resources) -> str | None:
    """Why a method cannot be loaded with these resources, without a full stop; None where it can."""
    if method.needs.layers and resources.target.fused is None:
        return f"{why_no_layers(resources.target)}, so {method.name} cannot run"
    if not method.needs.head or resources.kind_for(method.needs) is not None:
        return None
    if method.asks is not None:
        return f"{method.name} needs {method.asks}"
    if resources.head is None:
        return f"No draft head fits this model, so {method.name} cannot run"
    lack = f"{method.title} needs a draft head of its own, and there is none for {resources.target.name}"
    if method.trains is None:
        return f"{lack}: give a published one with --head"
    return f"{lack}: train one with `python -m jakiro train --method {method.name}` and give it with --head"


@dataclass(frozen=True, slots=True)
class Context:
    """What an answer begins with.

    Attributes:
        token_ids: prompt and first token, on the host. ids: the same, (n + 1,) int64 on the device.
        features: (n, feature_size), the target's, of the prompt.
        head_rows: by head, rows that an earlier answer's cache held for the same tokens, from
            `DraftSession.head_rows`. A drafter computes the rows it does not take over from the features.
        prediction_ids: tokens of the answer that the client expects; empty for none.
    """

    token_ids: list[int]
    ids: Tensor
    features: Tensor
    head_rows: Mapping[object, Tensor] = field(default_factory=dict)
    prediction_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NoDraftLimits:
    """When candidates that need no draft pass go alone, so that nothing is drafted.

    Attributes:
        nodes: of such a tree, root included.
        least_chance: of a candidate; checking a less likely one costs more than it brings.
        drafted: accepted tokens that a draft brings on average, and that they must promise.
    """

    nodes: int
    least_chance: float
    drafted: float

    def worth(self, scores: Iterable[float]) -> list[float]:
        """The chances of those candidates that are worth checking; `scores` are log chances, the best first."""
        chances = map(math.exp, islice(scores, self.nodes - 1))
        return [chance for chance in chances if chance >= self.least_chance]

    def suffice(self, scores: Iterable[float]) -> bool:
        """Whether the candidates promise as much as a draft."""
        return sum(self.worth(scores)) >= self.drafted


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """What the next tree may be.

    Attributes:
        tree: width (children of a node, and nodes expanded a level), depth and nodes, root included. The root alone
            asks for candidates that need no draft pass.
        chains_only: no node may have two children, because the target scores no trees.
        chain: tokens from another source to merge into the tree at its root.
        free: when candidates that need no draft pass go alone; None for never.
        added: see `TokenRule.added`; None where no rule steers drafts. Those at fixed addresses do not ask for it.
    """

    tree: TreeConfig
    chains_only: bool = False
    chain: Chain | None = None
    free: NoDraftLimits | None = None
    added: Callable[[], Tensor] | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a session proposes.

    Attributes:
        tree: None means the root alone: this step decodes plainly.
        note: one sentence instead of the usual reason for the tree's size; what such a tree brings says nothing of it.
    """

    tree: DraftTree | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What a step committed, before any cut at the end of the answer.

    Attributes:
        token_ids: accepted tokens and the target's own, on the host. ids: the same, (n,) int64 on the device.
        features: (n, feature_size), the target's, one position before each.
        outcome: the tree with the target's choices at all nodes; None where a written text is replayed.
        logits: (num_nodes, vocab_size) of the target at all nodes where the method needs them, else None.
    """

    token_ids: list[int]
    ids: Tensor
    features: Tensor
    outcome: Outcome | None = None
    logits: Tensor | None = None


class DraftSession(ABC):
    """Drafting for one answer: caches, tables and counts that end with it."""

    @abstractmethod
    def propose(self, limits: TreeLimits) -> Proposal:
        """A tree whose root is the last committed token, within the limits."""

    @abstractmethod
    def observe(self, committed: Committed) -> None:
        """Takes what a step committed; called after every step, even if another source proposed its tree."""

    def head_rows(self) -> Mapping[object, Tensor]:
        """By head, a copy of what its cache holds of prompt and answer, (layers, 2, kv_heads, rows, head_dim).

        Row t has read token t + 1. An answer whose prompt begins alike may take them over.
        """
        return {}

    @abstractmethod
    def rewind(self, length: int) -> None:
        """Goes back to the first `length` tokens of prompt and answer; other knowledge may stay.

        The next call is `observe`, with the tokens that follow them this time.
        """


# From the outputs of all passes and the chosen candidates: their evidence by name, and their proposers
HeadEvidence = Callable[[list[HeadOutput], Candidates], tuple[dict[str, Tensor], Tensor]]


class Drafter(ABC):
    """A loaded method: weights and tables that all answers share.

    Attributes:
        proposers: the sources of candidates that its trees name, in this order.
        evidence: name and width of each matrix in the evidence of its trees, see `DraftTree`.
        info: "name" and hashes of its files for traces; None where it has no files.
        chains: its sessions have candidates that need no draft pass.
    """

    proposers: tuple[Proposer, ...] = ()
    evidence: tuple[tuple[str, int], ...] = ()
    info: dict | None = None
    chains: bool = False

    @abstractmethod
    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> DraftSession:
        """Begins an answer; `noise` is the target's own."""

    def capturable_in(self, slot) -> "Drafter | None":
        """The same drafter in buffers at fixed addresses, so that its passes can be captured; None where it has no such
        form.

        Args:
            slot: a `jakiro.backends.cuda_graphs.buffers.GraphBuffers`; drafters call its `head_drafter` and `chain`.
        """
        return None

    def passes(self, tree: TreeConfig, greedy: bool, chained: bool = False) -> Iterable:
        """Return the `GraphedPass`es that an answer may need of a drafter at fixed addresses.

        Args:
            tree: the one that it asks for. greedy: whether sampling is.
            chained: whether the limits bring a chain.
        """
        return ()
