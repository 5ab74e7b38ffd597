"""ADED: trees of tokens that followed the last two tokens, in a corpus and earlier in this answer (arXiv 2407.12021).

A table of trigrams replaces a draft model; every committed trigram is added to the answer's own counts. The paper
searches the tree by Monte Carlo; here best-first search finds the most likely candidates exactly. The search uses host
integers only. Above temperature 0, candidates are ranked with the noise of the target's own choice.
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
# Weight of a trigram of this answer, in trigrams of the corpus
LIVE_WEIGHT = 8.0
# Rate at which the target's choice is among the successors of a pair that was seen n times. It is learned for each
# ⌊log2 n⌋, starting from COVERAGE with the weight of COVERAGE_TRIES observations
COVERAGE, COVERAGE_TRIES, LARGEST_CLASS = 0.45, 8.0, 10


@dataclass(slots=True, eq=False)
class Guess:
    """A candidate of the search.

    Attributes:
        score, proposer, also: as in `DraftTree`.
        parent: None or a guess of depth 0 is the root.
    """

    token_id: int
    score: float
    proposer: int = 0
    also: int = 0
    depth: int = 0
    parent: "Guess | None" = None


def candidates_of(guesses: Sequence[Guess], device: torch.device) -> Candidates:
    """Return the guesses as tensors, with parents before their children; guesses of depth 1 have the root as parent."""
    places = {id(guess): place for place, guess in enumerate(guesses, start=1)}
    columns = [
        [guess.token_id, places.get(id(guess.parent), 0), guess.depth, guess.proposer, guess.also] for guess in guesses
    ]
    token_ids, parents, depths, proposers, also = torch.tensor(columns, device=device).T.contiguous()
    scores = torch.tensor([guess.score for guess in guesses], device=device)
    return Candidates.of(token_ids, parents, depths, scores, proposers=proposers, also=also)


class TrigramDrafter(Drafter):
    """Drafts from a table of trigrams, which all answers share and which does not change.

    Args:
        live: whether an answer also counts its own trigrams.
    """

    proposers = (
        Proposer("trigram", "Trigram table", "Tokens that followed the same two tokens in a corpus."),
        Proposer("trigram_live", "This answer", "Tokens that followed the same two tokens in this conversation."),
    )

    def __init__(self, table: TrigramTable, info: dict | None = None, live: bool = True) -> None:
        self.table, self.info, self.live = table, info, live

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "TrigramSession":
        return TrigramSession(self, prompt, sampling)


class TrigramSession(DraftSession):
    """The trigrams of one answer, and how often the target's choice was among a pair's successors."""

    def __init__(self, drafter: TrigramDrafter, prompt: Context, sampling: SamplingParams) -> None:
        self.table, self.live = drafter.table, drafter.live
        self.sampling, self.device = sampling, prompt.ids.device
        self.tokens: list[int] = []
        self.own: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self.hits = [COVERAGE * COVERAGE_TRIES] * (LARGEST_CLASS + 1)
        self.tries = [COVERAGE_TRIES] * (LARGEST_CLASS + 1)
        self._append(prompt.token_ids)

    def propose(self, request: DraftRequest) -> Proposal:
        guesses = self.guesses(request.tree.nodes - 1, request.tree.depth, request.tree.width)
        if not guesses:
            return Proposal(note="No known token follows the last two tokens.")
        root_token = torch.tensor(self.tokens[-1:], device=self.device)
        return best_proposal(root_token, candidates_of(guesses, self.device), request)

    def guesses(self, most: int, depth: int, width: int) -> list[Guess]:
        """Return the `most` candidates with the best scores, by level."""
        root, guesses = Guess(self.tokens[-1], 0.0), []
        queue = [(-node.score, number, node) for number, node in enumerate(self._children(root, width))]
        pushed = len(queue)
        heapq.heapify(queue)
        while queue and len(guesses) < most:
            _, _, node = heapq.heappop(queue)
            guesses.append(node)
            if node.depth < depth:
                for child in self._children(node, width):
                    heapq.heappush(queue, (-child.score, pushed, child))
                    pushed += 1
        return sorted(guesses, key=lambda node: node.depth)

    def _children(self, node: Guess, width: int) -> list[Guess]:
        """Return the best successors of the node and the token before it, the most likely first."""
        before = self.tokens[-2] if node.parent is None else node.parent.token_id
        table, live, total = self._successors(before, node.token_id)
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
        children = []
        for token_id in sorted(ranks, key=lambda token: (-ranks[token], token))[:width]:
            both = token_id in table and token_id in live
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

    def _successors(self, first: int, second: int) -> tuple[set[int], dict[int, int], dict[int, float]]:
        """Return two tokens' successors in the table, the counts in this answer, and the weighted counts of both."""
        token_ids, counts = self.table.after(first, second)
        live = self.own.get((first, second), {})
        total = dict(zip(token_ids, map(float, counts), strict=True))
        for token_id, count in live.items():
            total[token_id] = total.get(token_id, 0.0) + LIVE_WEIGHT * count
        return set(token_ids), live, total

    def observe(self, committed: Committed) -> None:
        for token_id in committed.token_ids:
            self._judge(token_id)
            self._append([token_id])

    def _judge(self, token_id: int) -> None:
        """Count whether the token was among the successors of the two tokens before it."""
        _, _, total = self._successors(*self.tokens[-2:])
        if total:
            kind = _class_of(sum(total.values()))
            self.tries[kind] += 1
            self.hits[kind] += token_id in total

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
    """Return the class of a pair; pairs with a similar number of observations share their hit rate."""
    return min(int(math.log2(seen)), LARGEST_CLASS)


def _load(resources: Resources) -> TrigramDrafter:
    """Return the drafter with the target's table; without a table, it uses only the trigrams of an answer.

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
    sentence="Proposes tokens that followed the same two tokens in a corpus or earlier in this answer.",
    paper="2407.12021",
    proposers=TrigramDrafter.proposers,
    needs=Needs(),
    load=_load,
)
