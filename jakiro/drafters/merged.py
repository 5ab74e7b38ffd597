"""Two methods in one: a drafter's tree with a chain from another source merged in at the root."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import accumulate

from torch import Tensor

from jakiro.config import ROOT_ONLY, SamplingParams
from jakiro.core.noise import NoiseSource
from jakiro.drafters.base import (
    Committed,
    Context,
    Drafter,
    DraftRequest,
    DraftSession,
    Method,
    Needs,
    Proposal,
    Resources,
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

    def expected_length(self, request: DraftRequest) -> float:
        """Return the expected number of accepted tokens of the chain."""
        return sum(map(math.exp, accumulate(self.checked_chain(request)[1])))

    def checked_chain(self, request: DraftRequest) -> tuple[list[int], list[float]]:
        """Return the chain after a check, because captured passes and compiled code read its ids unchecked.

        Raises:
            DrafterError: the chain is invalid.
        """
        token_ids, log_estimates = self.chain()
        check_chain(self, token_ids, log_estimates, request.vocab_size)
        return token_ids, log_estimates

    def propose(self, request: DraftRequest) -> Proposal:
        token_ids, log_estimates = self.checked_chain(request)
        length = min(len(token_ids), request.tree.nodes - 1, request.tree.depth)
        if request.undrafted_nodes and request.tree.root_only:
            length = len(request.likely(accumulate(log_estimates)))
        if length == 0:
            return Proposal(note="Nothing to copy from at this place.")
        chain = Chain.of(token_ids[:length], log_estimates[:length], self.proposer, self.root.device)
        candidates = "1 candidate" if length == 1 else f"{length} candidates"
        return Proposal(chain_tree(self.root, chain), note=f"Copied from an earlier place: {candidates}.")

    def observe(self, committed: Committed) -> None:
        self.root = committed.ids[-1:]


class MergedDrafter(Drafter):
    """A drafter with the trees of one drafter and the chains of another.

    Args:
        first: A drafter that merges the chain of its requests.
        second: A drafter with `ChainSession`s as sessions.
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


class MergedSession(DraftSession):
    """A session of a `MergedDrafter`."""

    def __init__(self, first: DraftSession, chains: ChainSession, place_chain: PlaceChain) -> None:
        self.first, self.chains, self._place_chain = first, chains, place_chain

    def propose(self, request: DraftRequest) -> Proposal:
        # A chain has no tree into which the other chain could be merged
        if isinstance(self.first, ChainSession):
            return max((self.first, self.chains), key=lambda chains: chains.expected_length(request)).propose(request)
        token_ids, log_estimates = self.chains.checked_chain(request)
        if request.needs_no_draft(accumulate(log_estimates)):
            return self.chains.propose(replace(request, tree=ROOT_ONLY))
        # The chain of an outer merged drafter, such as a prediction, is longer and more often right
        if token_ids and not request.chains_only and request.chain is None:
            chain = self._place_chain(token_ids, log_estimates, self.chains.proposer)
            request = replace(request, chain=chain)
        proposal = self.first.propose(request)
        # A drafter without a proposal, such as one beyond its trained length, leaves the chain
        return self.chains.propose(request) if proposal.tree is None and token_ids else proposal

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
        needs=Needs(
            *(getattr(first.needs, entry.name) or getattr(second.needs, entry.name) for entry in fields(Needs))
        ),
        load=load,
    )
