"""Replay of a stored text: the tree of each step is grown again, and the nodes that agree with the text are accepted.

Decoding is lossless, so a prompt's answer does not depend on the draft head. With the answer and the target's features
stored, the target is not required: the steps are those of `jakiro/decode/loop.py`, with the stored tokens instead of
the target's choices.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import DraftTree
from jakiro.drafters.base import Committed, Context, Drafter, DraftRequest
from jakiro.prompts import Question


@dataclass(frozen=True, slots=True)
class Answer:
    """A stored text.

    Attributes:
        ids: (length,) int64, prompt and answer; tokens after `end` evaluate the last tree.
        features: (length or more, feature_size), of the target, in its dtype.
        start: index of the first answer token, which the prefill chose; it is the first root.
        end: index of the answer's last token; the step that reaches it is the last one.
        question: the answer belongs to its first turn; None if the prompt was given as ids.
    """

    ids: Tensor
    features: Tensor
    start: int
    end: int
    question: Question | None = None


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """Result of one step.

    Attributes:
        token_ids: of the tree's nodes, root first.
        accepted_path: indices of the accepted nodes from depth 1, before any cut at the end of the answer.
        tested_depth: number of levels with a candidate below an accepted node.
        proposers: proposer of each accepted node, as in traces.
        chances: for each of these levels, the estimated chance that one of its candidates is accepted.
    """

    token_ids: tuple[int, ...]
    accepted_path: tuple[int, ...]
    tested_depth: int
    proposers: tuple[str, ...]
    chances: tuple[float, ...]


def replay(drafter: Drafter, answer: Answer, sampling: SamplingParams, tree: TreeConfig) -> Iterator[ReplayedStep]:
    """Yield the steps in which decoding would write a stored text.

    Args:
        drafter: of a method that needs no logits.
        answer: the text.
        sampling: settings with which it was written.
        tree: a fixed tree.
    """
    ids, features, root = answer.ids, answer.features, answer.start
    token_ids, names = ids.tolist(), [proposer.id for proposer in drafter.proposers]
    prompt = Context(token_ids[: root + 1], ids[: root + 1], features[:root])
    session = drafter.start(prompt, sampling, KeyedNoise(sampling.seed))
    while root < answer.end:
        proposed = session.propose(DraftRequest(tree)).tree
        if proposed is None:
            proposed = DraftTree.root_only(ids[root : root + 1])
        step = _compare(proposed, token_ids[root + 1 :], names)
        yield step
        before, root = root, root + len(step.accepted_path) + 1
        committed = slice(before + 1, root + 1)
        session.observe(Committed(token_ids[committed], ids[committed], features[before:root]))


def _compare(tree: DraftTree, following: Sequence[int], names: Sequence[str]) -> ReplayedStep:
    token_ids, parents = tree.token_ids.tolist(), tree.parents.tolist()
    path = accepted_path(token_ids, parents, following)
    accepted, scores, proposers = (0, *path), tree.scores.tolist(), tree.proposers.tolist()
    below = [[scores[node] for node in range(1, len(parents)) if parents[node] == parent] for parent in accepted]
    chances = tuple(
        sum(math.exp(score - scores[parent]) for score in children)
        for parent, children in zip(accepted, below, strict=True)
        if children
    )
    return ReplayedStep(tuple(token_ids), path, len(chances), tuple(names[proposers[node]] for node in path), chances)


def accepted_path(token_ids: Sequence[int], parents: Sequence[int], following: Sequence[int]) -> tuple[int, ...]:
    """Return the path from depth 1 that spells the start of the following tokens."""
    children = {pair: node for node, pair in enumerate(zip(parents, token_ids, strict=True))}
    path: list[int] = []
    for token in following:
        child = children.get((path[-1] if path else 0, token))
        if child is None:
            break
        path.append(child)
    return tuple(path)
