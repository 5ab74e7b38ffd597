"""Jakiro's trees beside candidates that need no draft: each step takes what promises most tokens a second.

Free candidates are the trigrams of ADED and what prompt lookup copies, in one tree. With a temperature they are the
copies alone, because trigrams keep less than they promise there (lab/README.md). Where checking some of them alone pays
better than the head's best tree, by the costs measured on this device, nothing is drafted; else the likeliest chain
among them is merged into the head's tree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from jakiro.config import SamplingParams
from jakiro.core.noise import NoiseSource
from jakiro.drafters import jakiro, prompt_lookup
from jakiro.drafters.base import Committed, Context, Drafter, DraftRequest, DraftSession, Method, Proposal, Resources
from jakiro.drafters.candidates import MAX_CHAIN, Chain, best_tree
from lab.published import aded
from lab.published.aded import Guess, candidates_of

# Of the tree of free candidates
MOST, DEPTH, WIDTH = 24, 6, 6


class BestDrafter(Drafter):
    """A head's drafter, a table of trigrams, and copies."""

    def __init__(self, head: Drafter, trigrams: Drafter, copies: Drafter) -> None:
        self.parts = head, trigrams, copies
        self.proposers = tuple(proposer for part in self.parts for proposer in part.proposers)
        self.evidence, self.info, self.chains = head.evidence, head.info, True

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "BestSession":
        head, trigrams, copies = (part.start(prompt, sampling, noise) for part in self.parts)
        first = len(self.parts[0].proposers)
        return BestSession(head, trigrams if sampling.temperature == 0 else None, copies, first, prompt.ids[-1:])


class BestSession(DraftSession):
    """One answer.

    Args:
        trigrams: None where they take no part.
        first: place of the first free source among the proposers: table, live trigrams, copies.
        root: (1,) int64, the last committed token.
    """

    def __init__(
        self,
        head: DraftSession,
        trigrams: aded.TrigramSession | None,
        copies: prompt_lookup.PromptLookupSession,
        first: int,
        root: torch.Tensor,
    ) -> None:
        self.head, self.trigrams, self.copies = head, trigrams, copies
        self.parts = [part for part in (head, trigrams, copies) if part is not None]
        self.first, self.root = first, root
        self._known: list[Guess] | None = None

    def propose(self, limits: DraftRequest) -> Proposal:
        free = self._free()
        scores = sorted((guess.score for guess in free), reverse=True)
        if limits.needs_no_draft(scores):
            count = len(limits.likely(scores))
            if not count:
                return Proposal(note="Nothing was seen together here before.")
            candidates, deepest = candidates_of(free, self.root.device), max(guess.depth for guess in free)
            tree = best_tree(self.root, candidates, count, deepest)
            return Proposal(tree, note="Words that were seen together before promise as much as a draft.")
        path = best_path(free)[:MAX_CHAIN]
        if not path or limits.chains_only:
            return self.head.propose(limits)
        scores = [0.0, *(guess.score for guess in path)]
        edges = [below - above for above, below in pairwise(scores)]
        token_ids = [guess.token_id for guess in path]
        chain = Chain.of(token_ids, edges, path[0].proposer, self.root.device)
        return self.head.propose(replace(limits, chain=chain))

    def _free(self) -> list[Guess]:
        """All candidates of this step that need no draft, parents first."""
        if self._known is None:
            found = self.trigrams.guesses(MOST, DEPTH, WIDTH) if self.trigrams else []
            for guess in found:
                guess.proposer += self.first
                guess.also <<= self.first
            self._known = with_chain(found, *self.copies.chain(), self.first + len(aded.TrigramDrafter.proposers))
        return self._known

    def observe(self, committed: Committed) -> None:
        self._known, self.root = None, committed.ids[-1:]
        for part in self.parts:
            part.observe(committed)

    def head_rows(self) -> Mapping[object, torch.Tensor]:
        return self.head.head_rows()

    def rewind(self, length: int) -> None:
        self._known = None
        for part in self.parts:
            part.rewind(length)


def with_chain(
    guesses: Sequence[Guess], token_ids: Sequence[int], log_estimates: Sequence[float], proposer: int
) -> list[Guess]:
    """The guesses and a chain at the root; where both name a candidate it has both sources and the better score.

    Args:
        guesses: changed in place where the chain names them too.
        log_estimates: of each token given the one before.
    """
    found, known = list(guesses), {(_key(each.parent), each.token_id): each for each in guesses}
    above, score = None, 0.0
    for depth, (token_id, log_estimate) in enumerate(zip(token_ids, log_estimates, strict=True), start=1):
        score += log_estimate
        own = known.get((_key(above), token_id))
        if own is None:
            own = Guess(token_id, score, proposer, depth=depth, parent=above)
            found.append(own)
        else:
            own.score, own.also = max(own.score, score), own.also | 1 << proposer
        above = own
    return found


def best_path(guesses: Sequence[Guess]) -> list[Guess]:
    """From the root's best guess to the best one below it, and so on."""
    best: dict[int, Guess] = {}
    for each in guesses:
        key = _key(each.parent)
        if key not in best or each.score > best[key].score:
            best[key] = each
    path, above = [], 0
    while above in best:
        path.append(best[above])
        above = id(path[-1])
    return path


def _key(parent: Guess | None) -> int:
    """Equal for guesses with the same parent, and 0 below the root."""
    return 0 if parent is None or parent.depth == 0 else id(parent)


def _load(resources: Resources) -> BestDrafter:
    return BestDrafter(*(method.load(resources) for method in (jakiro.METHOD, aded.METHOD, prompt_lookup.METHOD)))


METHOD = Method(
    name="best",
    title="Best source",
    sentence="Jakiro's trees, or words that were seen together before, whichever promises more at each step.",
    paper=None,
    proposers=(*jakiro.METHOD.proposers, *aded.METHOD.proposers, *prompt_lookup.METHOD.proposers),
    needs=jakiro.METHOD.needs,
    load=_load,
)
