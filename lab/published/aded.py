"""ADED: trees of what followed the last two tokens, in a corpus and earlier in this answer (arXiv 2407.12021).

A table of trigrams stands in for a draft model; every committed trigram is added to this answer's own counts. The paper
searches the tree by Monte Carlo; here it is searched best-first, which finds the likeliest candidates exactly. Host
integers only. At temperatures above 0 candidates are ranked with the noise that the target's own choice will meet.
"""

import hashlib
import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jakiro.config import SamplingParams
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
    Proposer,
    Resources,
)
from jakiro.drafters.candidates import Candidates
from lab.published.host import best_proposal, gumbel_of
from lab.published.trigrams import TrigramTable, find_table, fingerprint

TABLE, LIVE = 0, 1
# A trigram of this answer has the weight of so many in the corpus
LIVE_WEIGHT = 8.0
# How often the target's choice is among the successors of a pair that was seen n times: learned for each ⌊log2 n⌋ from
# this rate, which counts as so many tries
COVERAGE, COVERAGE_TRIES, LARGEST_CLASS = 0.45, 8.0, 10


@dataclass(slots=True, eq=False)
class Guess:
    """A candidate of the search.

    Attributes:
        score, proposer, also: as in `DraftTree`.
        parent: a guess of depth 0 is the root, None stands for it too.
    """

    token_id: int
    score: float
    proposer: int = 0
    also: int = 0
    depth: int = 0
    parent: "Guess | None" = None


def candidates_of(guesses: Sequence[Guess], device: torch.device) -> Candidates:
    """The guesses as tensors; parents come before their children, and those of depth 1 have the root for a parent."""
    places = {id(guess): place for place, guess in enumerate(guesses, start=1)}
    columns = [
        [each.token_id, places.get(id(each.parent), 0), each.depth, each.proposer, each.also] for each in guesses
    ]
    token_ids, parents, depths, proposers, also = torch.tensor(columns, device=device).T.contiguous()
    scores = torch.tensor([each.score for each in guesses], device=device)
    return Candidates.of(token_ids, parents, depths, scores, proposers=proposers, also=also)


class TrigramDrafter(Drafter):
    """Drafts from a table of trigrams, which all answers share and none changes.

    Args:
        live: whether an answer learns from its own text.
    """

    proposers = (
        Proposer("trigram", "Trigram table", "What followed the same two tokens in the texts that were counted."),
        Proposer("trigram_live", "This answer", "What followed the same two tokens earlier in this conversation."),
    )

    def __init__(self, table: TrigramTable, info: dict | None = None, live: bool = True) -> None:
        self.table, self.info, self.live = table, info, live

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "TrigramSession":
        return TrigramSession(self, prompt, sampling)


class TrigramSession(DraftSession):
    """One answer's own trigrams, and how often the choice was among a pair's successors."""

    def __init__(self, drafter: TrigramDrafter, prompt: Context, sampling: SamplingParams) -> None:
        self.table, self.live = drafter.table, drafter.live
        self.sampling, self.device = sampling, prompt.ids.device
        self.tokens: list[int] = []
        self.own: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self.hits = [COVERAGE * COVERAGE_TRIES] * (LARGEST_CLASS + 1)
        self.tries = [COVERAGE_TRIES] * (LARGEST_CLASS + 1)
        self._append(prompt.token_ids)

    def propose(self, limits: DraftRequest) -> Proposal:
        found = self.guesses(limits.tree.nodes - 1, limits.tree.depth, limits.tree.width)
        if not found:
            return Proposal(note="These two tokens were never seen together: nothing to propose.")
        root_token = torch.tensor(self.tokens[-1:], device=self.device)
        return best_proposal(root_token, candidates_of(found, self.device), limits)

    def guesses(self, most: int, depth: int, width: int) -> list[Guess]:
        """The `most` candidates with the best scores, level by level."""
        root, found = Guess(self.tokens[-1], 0.0), []
        queue = [(-node.score, number, node) for number, node in enumerate(self._children(root, width))]
        pushed = len(queue)
        heapq.heapify(queue)
        while queue and len(found) < most:
            _, _, node = heapq.heappop(queue)
            found.append(node)
            if node.depth < depth:
                for child in self._children(node, width):
                    heapq.heappush(queue, (-child.score, pushed, child))
                    pushed += 1
        return sorted(found, key=lambda node: node.depth)

    def _children(self, node: Guess, width: int) -> list[Guess]:
        """The best successors of the node and the token before it, the likeliest first."""
        before = self.tokens[-2] if node.parent is None else node.parent.token_id
        token_ids, counts = self.table.after(before, node.token_id)
        total = dict(zip(token_ids, map(float, counts), strict=True))
        own = self.own.get((before, node.token_id), {})
        for token_id, count in own.items():
            total[token_id] = total.get(token_id, 0.0) + LIVE_WEIGHT * count
        if not total:
            return []
        seen = sum(total.values())
        kind = _class_of(seen)
        ranks = {token_id: math.log(count / seen) for token_id, count in total.items()}
        if not self.sampling.greedy:
            noise = gumbel_of(self.sampling.seed, len(self.tokens) + node.depth, list(total))
            for (token_id, log_share), gumbel in zip(ranks.items(), noise, strict=True):
                ranks[token_id] = log_share / self.sampling.temperature + gumbel
        top = max(ranks.values())
        log_sum = top + math.log(sum(math.exp(rank - top) for rank in ranks.values()))
        log_coverage = math.log(self.hits[kind] / self.tries[kind])
        table = set(token_ids)
        children = []
        for token_id in sorted(ranks, key=lambda each: (-ranks[each], each))[:width]:
            both = token_id in table and token_id in own
            children.append(
                Guess(
                    token_id=token_id,
                    score=node.score + ranks[token_id] - log_sum + log_coverage,
                    proposer=TABLE if token_id in table else LIVE,
                    also=1 << LIVE if both else 0,
                    depth=node.depth + 1,
                    parent=node,
                )
            )
        return children

    def observe(self, committed: Committed) -> None:
        for token_id in committed.token_ids:
            self._judge(token_id)
            self._append([token_id])

    def _judge(self, token_id: int) -> None:
        """Counts whether the token was among the successors of the two before it."""
        successors, counts = self.table.after(self.tokens[-2], self.tokens[-1])
        own = self.own.get((self.tokens[-2], self.tokens[-1]), {})
        seen = sum(counts) + LIVE_WEIGHT * sum(own.values())
        if seen:
            self.tries[_class_of(seen)] += 1
            self.hits[_class_of(seen)] += token_id in own or token_id in successors

    def _append(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            if self.live and len(self.tokens) >= 2:
                after = self.own[self.tokens[-2], self.tokens[-1]]
                after[token_id] = after.get(token_id, 0) + 1
            self.tokens.append(token_id)

    def rewind(self, length: int) -> None:
        tokens, self.tokens = self.tokens[:length], []
        self.own.clear()
        self._append(tokens)


def _class_of(seen: float) -> int:
    """Pairs that were seen about as often share their hit rate."""
    return min(int(math.log2(seen)), LARGEST_CLASS)


def _load(resources: Resources) -> TrigramDrafter:
    """The drafter with the target's table, or with none: then an answer's own trigrams are all there is.

    Raises:
        ValueError: the table was counted with another tokenizer, or cannot be read.
    """
    target = resources.target
    path = find_table(target.name)
    if path is None:
        return TrigramDrafter(TrigramTable.empty(target.vocab_size))
    table = TrigramTable.load(path)
    if table.tokenizer != fingerprint(target.tokenizer):
        raise ValueError(
            f"The table {path} was counted with another tokenizer than {target.name}'s; "
            "count it again with `python -m lab.published.counting`."
        )
    return TrigramDrafter(table, {"name": path.stem, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})


METHOD = Method(
    name="aded",
    title="ADED",
    sentence="Proposes what followed the same two tokens, in texts that were counted and earlier in this answer.",
    paper="2407.12021",
    proposers=TrigramDrafter.proposers,
    needs=Needs(),
    load=_load,
)
