"""The contract of drafting methods: a description, a drafter with its weights, and a session per request.

A method is one file in `jakiro/drafters/`. The acceptance rule never reads the draft's probabilities, so every drafter
with valid trees is lossless; the quality of its candidates determines the speed only. A tree is valid if its root is
the last committed token and siblings are different tokens; `checking.py` stops an answer with an invalid tree.

In each step `jakiro/decode/loop.py` calls `propose`, unless the tree budget plans no draft, and after the commit
`observe`.
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
from jakiro.heads.kinds import KINDS
from jakiro.heads.layers import HeadOutput
from jakiro.models.target import TargetModel


@dataclass(frozen=True, slots=True)
class Proposer:
    """A source of candidates. Its index in the method's `proposers` determines its hue and shape on the page.

    Attributes:
        id: Name in traces.
        label: One to three words.
        sentence: Description for a legend.
    """

    id: str
    label: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a method.

    Attributes:
        head: Supported kinds of draft heads, see `DraftConfig.kind`, the best one first; empty for methods without one.
        logits: Requires the target's logits at all nodes of a step, rejected ones included.
        layers: Requires a target with layers that can run separately.
    """

    head: tuple[str, ...] = ()
    logits: bool = False
    layers: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """Models available to a method when it is loaded.

    Attributes:
        head: Draft head bound to the target, or None if no head fits it.
        head_info: Its "name", "sha256" and "precision" for traces.
        further: By kind of head, a function that loads another head for the target and returns it with its info.
    """

    target: TargetModel
    head: DraftHead | None = None
    head_info: dict | None = None
    further: Mapping[str, Callable[[], tuple[DraftHead, dict]]] = field(default_factory=dict)

    def kind_for(self, needs: Needs) -> str | None:
        """Return the kind of the best available head for these needs, or None; `head` is preferred."""
        own_kind = None if self.head is None else self.head.config.kind
        if own_kind in needs.head:
            return own_kind
        return next((kind for kind in needs.head if kind in self.further), None)

    def head_for(self, needs: Needs) -> tuple[DraftHead, dict | None]:
        """Return the head of `kind_for`, which must not be None, and its info."""
        kind = self.kind_for(needs)
        if self.head is not None and kind == self.head.config.kind:
            return self.head, self.head_info
        return self.further[kind]()


@dataclass(frozen=True, slots=True)
class Method:
    """A drafting method: its description and the function that loads it.

    Attributes:
        name: Name in options and traces.
        title: Name on the page and in tables.
        sentence: Description in one sentence.
        paper: arXiv number, or None.
        proposers: Usual proposers; a loaded drafter has its own.
        load: Creates the drafter for generation from `Resources`; every method has this function.
        aliases: Older names of the method.
        drafts: Whether it runs draft passes.
        trains: Config fields of the heads trained for this method, or None if it has no heads of its own. Their kind is
            the first one in `needs.head`.
        drafter: Creates the drafter from a given head of that kind, bound to its target, and the head's info, for
            training and measurements; None if no kind of head belongs to the method. `head.head_method` derives
            `load` from it.
        kind: Kind of such heads, if `heads.kinds` does not contain it.
        asks: What users must provide, and with which option; None if a head can be downloaded or trained.
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

    @property
    def is_trainable(self) -> bool:
        """Return whether `train` can make heads for this method."""
        if self.trains is None:
            return False
        kind = self.kind or KINDS.get(self.needs.head[0])
        return kind is not None and kind.start is not None

    def to_dict(self) -> dict:
        """Return the description in JSON types."""
        plain = {name: getattr(self, name) for name in ("name", "title", "sentence", "paper", "drafts")}
        proposers = [asdict(proposer) for proposer in self.proposers]
        needs = asdict(self.needs) | {"head": list(self.needs.head)}
        return plain | {"aliases": list(self.aliases), "proposers": proposers, "needs": needs}


def why_no_layers(target: TargetModel) -> str:
    """Return why the layers of this target cannot run separately."""
    return f"Only layers of Llama's shape can run by themselves, and {target.name} has others"


def why_not(method: Method, resources: Resources) -> str | None:
    """Return why a method cannot be loaded with these resources, without a full stop, or None if it can."""
    if method.needs.layers and resources.target.fused is None:
        return f"{why_no_layers(resources.target)}, so {method.name} cannot run"
    if not method.needs.head or resources.kind_for(method.needs) is not None:
        return None
    if method.asks is not None:
        return f"{method.name} needs {method.asks}"
    if resources.head is None:
        return f"No draft head fits this model, so {method.name} cannot run"
    lack = f"{method.title} needs a draft head of its own, and there is none for {resources.target.name}"
    if not method.is_trainable:
        return f"{lack}: give one with --head"
    return f"{lack}: train one with `python -m jakiro train --method {method.name}` and give it with --head"


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of a session: the prompt, the first token and the prompt's features.

    Attributes:
        token_ids: Prompt and first token, on the host.
        ids: The same tokens on the device, (n + 1,) int64.
        features: (n, feature_size), the target's features of the prompt.
        head_rows: By head, cache rows of an earlier request with the same tokens, from `DraftSession.head_rows`. A
            drafter computes the other rows from the features.
        prediction_ids: Tokens of the completion that the client expects; may be empty.
    """

    token_ids: list[int]
    ids: Tensor
    features: Tensor
    head_rows: Mapping[object, Tensor] = field(default_factory=dict)
    prediction_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """The request for the next tree.

    Attributes:
        tree: Width (children per node, and expanded nodes per level), depth, and nodes with the root. A tree of the
            root alone requests candidates that need no draft pass.
        chains_only: No node may have two children, because the target cannot score trees.
        chain: Tokens from another source to merge into the tree at its root.
        draft_bias: See `LogitsProcessorList.draft_bias`; None if nothing steers drafts. Ignored by CUDA-graph drafters.
        undrafted_nodes: Maximum number of nodes, root included, of a tree of candidates that need no draft pass, such
            as copies from the text; 0 to always draft.
        min_probability: Smallest acceptance probability of such a candidate; verifying a less likely one costs more
            time than it saves.
        drafted_tokens: Mean number of accepted tokens of a draft. The draft passes are skipped if at least as many are
            expected from such candidates.
        vocab_size: Number of the target's tokens; chains with other ids are rejected. None for no check.
    """

    tree: TreeConfig
    chains_only: bool = False
    chain: Chain | None = None
    draft_bias: Callable[[], Tensor] | None = None
    undrafted_nodes: int = 0
    min_probability: float = 0.0
    drafted_tokens: float = 0.0
    vocab_size: int | None = None

    def likely(self, scores: Iterable[float]) -> list[float]:
        """Return the probabilities of the candidates worth verifying; `scores` are log probabilities, best first."""
        probabilities = map(math.exp, islice(scores, self.undrafted_nodes - 1))
        return [probability for probability in probabilities if probability >= self.min_probability]

    def needs_no_draft(self, scores: Iterable[float]) -> bool:
        """Return whether at least as many tokens are expected from candidates with these scores as from a draft."""
        return self.undrafted_nodes > 0 and sum(self.likely(scores)) >= self.drafted_tokens


# Name in earlier versions
TreeLimits = DraftRequest


@dataclass(frozen=True, slots=True)
class Proposal:
    """The result of `DraftSession.propose`.

    Attributes:
        tree: A tree, or None for only the root (plain decoding in this step).
        note: One sentence that replaces the usual reason for the tree's size. The tree budget ignores such a tree.
    """

    tree: DraftTree | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens committed by a step. The last step may also commit tokens after the end of the completion.

    Attributes:
        token_ids: Accepted tokens and the bonus token, on the host.
        ids: The same tokens on the device, (n,) int64.
        features: (n, feature_size); row i has the target's features at the position before token i.
        outcome: The tree with the target's choices at all nodes; None if a finished text is replayed.
        logits: (num_nodes, vocab_size), the target's logits at all nodes if the method requires them, else None.
    """

    token_ids: list[int]
    ids: Tensor
    features: Tensor
    outcome: Outcome | None = None
    logits: Tensor | None = None


class DraftSession(ABC):
    """Drafting for one request: caches, tables and counts of this request."""

    @property
    def num_tokens(self) -> int | None:
        """Number of tokens of prompt and completion that the session has observed; None if it does not count them."""
        return None

    @abstractmethod
    def propose(self, request: DraftRequest) -> Proposal:
        """Return a tree within the bounds of the request; its root is the last committed token.

        The request does not contain that token. It is the last one of `Context.ids`, then of `Committed.ids` in
        `observe`, so the session must store it. A step without a draft skips this call.
        """

    @abstractmethod
    def observe(self, committed: Committed) -> None:
        """Process the tokens that a step committed, even if another source proposed its tree or nothing was drafted.

        It is called after every step, except for the last one of an answer that no token can follow. Subclasses of a
        session that implements it, such as `ChainSession`, must call `super().observe(committed)`.
        """

    def head_rows(self) -> Mapping[object, Tensor]:
        """Return a copy of each head's cache rows of prompt and completion, (layers, 2, kv_heads, rows, head_dim).

        Row t belongs to token t + 1. Requests for prompts with the same prefix may reuse them.
        """
        return {}

    @abstractmethod
    def rewind(self, length: int) -> None:
        """Forget all but the first `length` tokens of prompt and completion; statistics may be kept.

        The next call is `observe`, with the tokens that now follow. Decoding does not call it; the measurement of draft
        times (`jakiro.decode.device_profile`) does.
        """


# Maps the outputs of all passes and the selected candidates to their evidence by name and their proposers
HeadEvidence = Callable[[list[HeadOutput], Candidates], tuple[dict[str, Tensor], Tensor]]


class Drafter(ABC):
    """A loaded method: weights and tables shared by all requests.

    Attributes:
        proposers: Sources of candidates; the column `proposers` of a tree contains indices into this tuple.
        evidence: Name and width of each evidence matrix of its trees, see `DraftTree`.
        info: "name" and hashes of its files for traces, or None if it has no files.
        chains: Whether its sessions have candidates that need no draft pass.
    """

    proposers: tuple[Proposer, ...] = ()
    evidence: tuple[tuple[str, int], ...] = ()
    info: dict | None = None
    chains: bool = False

    @abstractmethod
    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> DraftSession:
        """Return a session for one request; `noise` is the target's own."""
