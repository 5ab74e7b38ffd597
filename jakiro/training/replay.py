"""Replaying a written text: every step's tree is grown again, and the tokens that the text shares with it are accepted.

Decoding is lossless, so a prompt's answer does not depend on the head that drafts. Once the answer and the target's
features are stored, the target is no longer needed: the steps are those of `jakiro/decode/loop.py`, with the written
tokens in place of the target's choices.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import DraftTree
from jakiro.drafters.base import Committed, Context, Drafter, DraftRequest, DraftSession
from jakiro.prompts import Question


@dataclass(frozen=True, slots=True)
class Answer:
    """A written text.

    Attributes:
        ids: (length,) int64, prompt and answer; tokens after `end` show what the last tree got right.
        features: (length or more, feature_size), the target's, in its own dtype.
        start: index of the first answer token; it came from the prefill and is the first root.
        end: index of the answer's last token; the step that reaches it is the last.
        question: of which only the first turn was asked; None where the prompt was given as ids.
    """

    ids: Tensor
    features: Tensor
    start: int
    end: int
    question: Question | None = None


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """What one step accepted.

    Attributes:
        token_ids: of the tree's nodes, root first.
        accepted_path: node indices from depth 1 on, before any cut at the end of the answer.
        tested_depth: levels that had a candidate under a kept node.
        proposers: who proposed each accepted node, as in traces.
        chances: for each of these levels, the estimated chance that one of the candidates there is kept.
    """

    token_ids: tuple[int, ...]
    accepted_path: tuple[int, ...]
    tested_depth: int
    proposers: tuple[str, ...]
    chances: tuple[float, ...]


def replay(drafter: Drafter, answer: Answer, sampling: SamplingParams, tree: TreeConfig) -> Iterator[ReplayedStep]:
    """Drafts along a written text from the true features, as decoding it would.

    Args:
        drafter: of a method that needs no logits.
        tree: a fixed tree.
    """
    ids, features, root = answer.ids, answer.features, answer.start
    token_ids, names = ids.tolist(), [proposer.id for proposer in drafter.proposers]
    session = begun(drafter, ids, features, root, sampling)
    while root < answer.end:
        proposed = session.propose(DraftRequest(tree)).tree
        if proposed is None:
            proposed = DraftTree.root_only(ids[root : root + 1])
        step = _compare(proposed, token_ids[root + 1 :], names)
        yield step
        before, root = root, root + len(step.accepted_path) + 1
        session.observe(written(ids, features, before, root))


def begun(drafter: Drafter, ids: Tensor, features: Tensor, start: int, sampling: SamplingParams) -> DraftSession:
    """Drafting for a written text; the arguments are those of an `Answer`."""
    prompt = Context(ids[: start + 1].tolist(), ids[: start + 1], features[:start])
    return drafter.start(prompt, sampling, KeyedNoise(sampling.seed))


def written(ids: Tensor, features: Tensor, before: int, root: int) -> Committed:
    """What a step commits of a written text whose root moves from index `before` to `root`."""
    new_ids = ids[before + 1 : root + 1]
    return Committed(new_ids.tolist(), new_ids, features[before:root])


def _compare(tree: DraftTree, following: Sequence[int], names: Sequence[str]) -> ReplayedStep:
    token_ids, parents = tree.token_ids.tolist(), tree.parents.tolist()
    path = accepted_path(token_ids, parents, following)
    kept, scores, proposers = (0, *path), tree.scores.tolist(), tree.proposers.tolist()
    below = [[scores[node] for node in range(1, len(parents)) if parents[node] == parent] for parent in kept]
    chances = tuple(
        sum(math.exp(score - scores[parent]) for score in own) for parent, own in zip(kept, below, strict=True) if own
    )
    return ReplayedStep(tuple(token_ids), path, len(chances), tuple(names[proposers[node]] for node in path), chances)


def accepted_path(token_ids: Sequence[int], parents: Sequence[int], following: Sequence[int]) -> tuple[int, ...]:
    """The nodes, from depth 1 on, that spell the beginning of the following tokens."""
    children = children_of(token_ids, parents)
    path: list[int] = []
    for token in following:
        child = children.get((path[-1] if path else 0, token))
        if child is None:
            break
        path.append(child)
    return tuple(path)


def children_of(token_ids: Sequence[int], parents: Sequence[int]) -> dict[tuple[int, int], int]:
    """The nodes of a tree by parent and token."""
    return {(parent, token): node for node, (parent, token) in enumerate(zip(parents, token_ids, strict=True))}
