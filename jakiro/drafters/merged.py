"""Two methods in one: a drafter's tree with a chain from another source merged in at the root."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import accumulate

from torch import Tensor

from jakiro.config import ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.core.noise import NoiseSource
from jakiro.drafters.base import (
    Committed,
    Context,
    Drafter,
    DraftSession,
    Method,
    Needs,
    Proposal,
    Resources,
    TreeLimits,
)
from jakiro.drafters.candidates import Chain, chain_tree
from jakiro.drafters.checking import check_chain

PlaceChain = Callable[[Sequence[int], Sequence[float], int], Chain]


class ChainSession(DraftSession):
    """A session that proposes chains without a draft pass.

    Args:
        root: (1,) int64, the last committed token.

    Attributes:
        proposer: Index of the chain's source in the drafter's `proposers`; set by a merging drafter.
    """

    def __init__(self, root: Tensor) -> None:
        self.root, self.proposer = root, 0

    @abstractmethod
    def chain(self) -> tuple[list[int], list[float]]:
        """Return tokens and the log probability of each given the one before; empty lists to propose nothing."""

    def checked_chain(self, limits: TreeLimits) -> tuple[list[int], list[float]]:
        """Return the chain after a check, because captured passes and compiled code read its ids unchecked.

        Raises:
            DrafterError: the chain is invalid.
        """
        token_ids, log_estimates = self.chain()
        check_chain(self, token_ids, log_estimates, limits.vocab_size)
        return token_ids, log_estimates

    def propose(self, limits: TreeLimits) -> Proposal:
        token_ids, log_estimates = self.checked_chain(limits)
        length = min(len(token_ids), limits.tree.nodes - 1, limits.tree.depth)
        if limits.free is not None and limits.tree.root_only:
            length = len(limits.free.worth(accumulate(log_estimates)))
        if length == 0:
            return Proposal(note="Nothing to copy from at this place.")
        chain = Chain.of(token_ids[:length], log_estimates[:length], self.proposer, self.root.device)
        candidates = "1 candidate" if length == 1 else f"{length} candidates"
        return Proposal(chain_tree(self.root, chain), note=f"Copied from an earlier place: {candidates}.")

    def observe(self, committed: Committed) -> None:
        self.root = committed.ids[-1:]


class MergedDrafter(Drafter):
    """A drafter whose trees come from one drafter and whose chains come from another.

    Args:
        first: A drafter that merges the chain in its limits.
        second: A drafter whose sessions are `ChainSession`s.
        place_chain: Writes a chain into the buffers that the first drafter reads; None creates new tensors.
    """

    def __init__(self, first: Drafter, second: Drafter, place_chain: PlaceChain | None = None) -> None:
        self.first, self.second, self.place_chain = first, second, place_chain
        self.proposers = (*first.proposers, *second.proposers)
        self.evidence, self.info, self.chains = first.evidence, first.info, True

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "MergedSession":
        chains = self.second.start(prompt, sampling, noise)
        chains.proposer = len(self.first.proposers)
        place = self.place_chain or partial(Chain.of, device=prompt.ids.device)
        return MergedSession(self.first.start(prompt, sampling, noise), chains, place)

    def capturable_in(self, slot) -> "MergedDrafter | None":
        first = self.first.capturable_in(slot)
        return None if first is None else MergedDrafter(first, self.second, slot.chain)

    def passes(self, tree: TreeConfig, greedy: bool, chained: bool = False) -> Iterable:
        yield from self.first.passes(tree, greedy)
        yield from self.first.passes(tree, greedy, chained=True)


class MergedSession(DraftSession):
    """A session of a `MergedDrafter`."""

    def __init__(self, first: DraftSession, chains: ChainSession, place_chain: PlaceChain) -> None:
        self.first, self.chains, self._place_chain = first, chains, place_chain

    def propose(self, limits: TreeLimits) -> Proposal:
        token_ids, log_estimates = self.chains.checked_chain(limits)
        if limits.free is not None and limits.free.suffice(accumulate(log_estimates)):
            return self.chains.propose(replace(limits, tree=ROOT_ONLY))
        # The chain of an outer merged drafter, such as a prediction, is longer and more often right
        if token_ids and not limits.chains_only and limits.chain is None:
            chain = self._place_chain(token_ids, log_estimates, self.chains.proposer)
            limits = replace(limits, chain=chain)
        proposal = self.first.propose(limits)
        # A drafter without a proposal, such as one beyond its trained length, leaves the chain
        return self.chains.propose(limits) if proposal.tree is None and token_ids else proposal

    def observe(self, committed: Committed) -> None:
        self.first.observe(committed)
        self.chains.observe(committed)

    @property
    def num_tokens(self) -> int | None:
        return self.first.num_tokens

    def head_rows(self) -> Mapping[object, Tensor]:
        return self.first.head_rows()

    def rewind(self, length: int) -> None:
        self.first.rewind(length)
        self.chains.rewind(length)


def merged(first: Method, second: Method, sentence: str) -> Method:
    """Return the method that drafts with the first method and merges the chains of the second."""

    def load(resources: Resources) -> MergedDrafter:
        return MergedDrafter(first.load(resources), second.load(resources))

    return Method(
        name=f"{first.name}+{second.name}",
        title=f"{first.title} + {second.title.lower()}",
        sentence=sentence,
        paper=first.paper,
        proposers=(*first.proposers, *second.proposers),
        needs=Needs(*(getattr(first.needs, each.name) or getattr(second.needs, each.name) for each in fields(Needs))),
        load=load,
    )
