"""ADED: trees of what followed the last two tokens, in a corpus and earlier in this answer (arXiv 2407.12021).

A table of trigrams stands in for a draft model; every committed trigram is added to this answer's own counts. The tree
is searched best-first, or by Monte Carlo tree search with the rule PUCT, as the paper does. Host integers only. At
temperatures above 0 candidates are ranked with the noise that the target's own choice will meet.
"""

import hashlib
import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jakiro.config import SamplingParams
from jakiro.core.noise import NoiseSource, gumbel_of
from jakiro.drafting.base import (
    Drafter,
    DraftSession,
    Kept,
    Method,
    Needs,
    Prompt,
    Proposal,
    Proposer,
    Resources,
    TreeLimits,
)
from jakiro.drafting.candidates import Candidates, best_tree, forecast
from jakiro.drafting.trigrams import TrigramTable, find_table, fingerprint

TABLE, LIVE = 0, 1
# A trigram of this answer counts as so many of the corpus
LIVE_WEIGHT = 8.0
# Rollouts of one search with PUCT, and how much it explores
ROLLOUTS, EXPLORATION = 150, 1.0
# Of a pair seen n times, how often the target's choice is among its successors: learned by ⌊log2 n⌋, from these tries
COVERAGE, COVERAGE_TRIES, LARGEST_CLASS = 0.45, 8.0, 10
SEARCHES = ("best-first", "puct")


@dataclass(slots=True)
class _Node:
    """A candidate while the tree is searched; `children` are made when the search first looks below it."""

    token_id: int
    score: float
    proposer: int = TABLE
    also: int = 0
    depth: int = 0
    parent: "_Node | None" = None
    children: "list[_Node] | None" = None
    visits: int = 0
    worth: float = 0.0
    place: int = 0


class TrigramDrafter(Drafter):
    """Drafts from a table of trigrams, which all answers share and none changes.

    Args:
        search: "best-first", or "puct" as in the paper.
        live: whether an answer learns from its own text.
    """

    proposers = (
        Proposer("trigram", "Trigram table", "What followed the same two tokens in the texts that were counted."),
        Proposer("trigram_live", "This answer", "What followed the same two tokens earlier in this conversation."),
    )

    def __init__(
        self, table: TrigramTable, info: dict | None = None, search: str = SEARCHES[0], live: bool = True
    ) -> None:
        if search not in SEARCHES:
            raise ValueError(f"A search is one of {', '.join(SEARCHES)}; you gave {search!r}.")
        self.table, self.info, self.search, self.live = table, info, search, live

    def start(self, prompt: Prompt, sampling: SamplingParams, noise: NoiseSource) -> "TrigramSession":
        return TrigramSession(self, prompt, sampling)


class TrigramSession(DraftSession):
    """One answer's own trigrams, and how often the choice was among a pair's successors."""

    def __init__(self, drafter: TrigramDrafter, prompt: Prompt, sampling: SamplingParams) -> None:
        self.table, self.search, self.live = drafter.table, drafter.search, drafter.live
        self.sampling, self.device = sampling, prompt.ids.device
        self.tokens: list[int] = []
        self.own: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self.hits = [COVERAGE * COVERAGE_TRIES] * (LARGEST_CLASS + 1)
        self.tries = [COVERAGE_TRIES] * (LARGEST_CLASS + 1)
        self._append(prompt.token_ids)

    def propose(self, limits: TreeLimits) -> Proposal:
        most = max((limits.tree.nodes, *limits.sizes)) - 1
        root = _Node(self.tokens[-1], 0.0)
        find = self._best_first if self.search == SEARCHES[0] else self._by_rollouts
        found = sorted(find(root, most, limits.tree.depth, limits.tree.width), key=lambda node: node.depth)
        if not found:
            return Proposal(note="These two tokens were never seen together: nothing to propose.")
        candidates = self._candidates(found)
        promised = forecast(candidates, limits.tree.depth, limits.sizes) if limits.sizes else None
        root_token = torch.tensor([root.token_id], device=self.device)
        kept = min(limits.tree.nodes - 1, candidates.count)
        return Proposal(best_tree(root_token, candidates, kept, limits.tree.depth), promised)

    def _candidates(self, found: list[_Node]) -> Candidates:
        """Nodes as tensors, parents first."""
        for place, node in enumerate(found, start=1):
            node.place = place
        columns = [[node.token_id, node.parent.place, node.depth, node.proposer, node.also] for node in found]
        token_ids, parents, depths, proposers, also = torch.tensor(columns, device=self.device).T.contiguous()
        scores = torch.tensor([node.score for node in found], device=self.device)
        return Candidates(
            token_ids=token_ids,
            parents=parents,
            depths=depths,
            scores=scores,
            draft_passes=torch.zeros_like(depths),
            draft_probs=torch.full_like(scores, torch.nan),
            proposers=proposers,
            also=also,
            rows=torch.arange(len(found), device=self.device),
        )

    def _best_first(self, root: _Node, most: int, depth: int, width: int) -> list[_Node]:
        """The `most` candidates with the best scores, parents before children."""
        found: list[_Node] = []
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
        return found

    def _by_rollouts(self, root: _Node, most: int, depth: int, width: int) -> list[_Node]:
        """The `most` candidates that PUCT visited most often.

        A rollout descends by worth + exploration · chance · √visits ÷ (1 + own visits); its own worth is the share of
        the levels that the target is expected to keep.
        """
        found: list[_Node] = []
        for _ in range(ROLLOUTS):
            path = [root]
            while path[-1].depth < depth and self._children(path[-1], width):
                path.append(_by_puct(path[-1]))
            worth = sum(math.exp(node.score) for node in path[1:]) / depth
            found += [node for node in path[1:] if node.visits == 0]
            for node in path:
                node.visits += 1
                node.worth += (worth - node.worth) / node.visits
        found.sort(key=lambda node: (-node.visits, node.depth, -node.score))
        return found[:most]

    def _children(self, node: _Node, width: int) -> list[_Node]:
        """The best successors of the node and the token before it, the likeliest first."""
        if node.children is None:
            before = self.tokens[-2] if node.parent is None else node.parent.token_id
            node.children = self._successors(node, before, width)
        return node.children

    def _successors(self, node: _Node, before: int, width: int) -> list[_Node]:
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
                _Node(
                    token_id=token_id,
                    score=node.score + ranks[token_id] - log_sum + log_coverage,
                    proposer=TABLE if token_id in table else LIVE,
                    also=1 << LIVE if both else 0,
                    depth=node.depth + 1,
                    parent=node,
                )
            )
        return children

    def observe(self, kept: Kept) -> None:
        for token_id in kept.token_ids:
            self._judge(token_id)
            self._append([token_id])

    def _judge(self, token_id: int) -> None:
        """Counts whether the token that came was among the successors of the two before it."""
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


def _by_puct(node: _Node) -> _Node:
    """The child that a rollout visits next."""
    scale = EXPLORATION * math.sqrt(node.visits)

    def promise(child: _Node) -> float:
        return child.worth + scale * math.exp(child.score - node.score) / (1 + child.visits)

    return max(node.children, key=promise)


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
            "count it anew with `python -m jakiro trigrams`."
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
