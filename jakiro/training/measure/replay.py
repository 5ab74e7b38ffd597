"""Replaying a written text: the tree of every step is grown again, and what the text holds of it is what was accepted.

Decoding is lossless, so a prompt's answer does not depend on the head that drafts. Once it is written, with the
target's features, the target is not needed any more: this is decoding as `stream.py` does it, step by step, with the
written tokens in place of the target's choices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import DraftTree
from jakiro.drafting.base import HeadSession
from jakiro.engine.recorder import proposer_name
from jakiro.heads.jakiro import JakiroHead


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """What one step accepted.

    Attributes:
        token_ids: of the tree's nodes, root first.
        accepted_path: node indices from depth 1 on, before any cut at the end of the answer.
        tested_depth: levels that had a candidate under a kept node.
        proposers: who proposed each accepted node, in the words of traces.
    """

    token_ids: tuple[int, ...]
    accepted_path: tuple[int, ...]
    tested_depth: int
    proposers: tuple[str, ...]


def replay(
    head: JakiroHead,
    ids: Tensor,
    features: Tensor,
    start: int,
    end: int,
    sampling: SamplingParams,
    tree: TreeConfig,
    noise_rows=None,
) -> Iterator[ReplayedStep]:
    """Drafts along a written text from the true features, as decoding it would.

    Args:
        head: bound to its target.
        ids: (length,) prompt and answer; tokens behind `end` still tell what the last tree got right.
        features: (length or more, feature_size), the target's.
        start: index of the first answer token; it came from the prefill and is the first root.
        end: index of the answer's last token; the step that reaches it is the last.
        tree: a fixed tree.
        noise_rows: stands in for the noise of `sampling`'s seed.
    """
    session = HeadSession(head, sampling, KeyedNoise(sampling.seed), len(ids) + tree.depth * tree.width)
    session.noise_rows = noise_rows or session.noise_rows
    root, fed = start, 0
    while root < end:
        session.extend(ids[fed + 1 : root + 1], features[fed:root])
        fed = root
        step = _compare(session.propose(tree), ids[root + 1 :].tolist())
        yield step
        root += len(step.accepted_path) + 1


def _compare(tree: DraftTree, following: Sequence[int]) -> ReplayedStep:
    token_ids, parents = tree.token_ids.tolist(), tree.parents.tolist()
    path = accepted_path(token_ids, parents, following)
    kept = {0, *path}
    depths, branches, experts = tree.depths.tolist(), tree.branches.tolist(), tree.proposers.tolist()
    tested = max((depths[node] for node in range(1, len(parents)) if parents[node] in kept), default=0)
    proposers = tuple(proposer_name(branches[node], experts[node]) for node in path)
    return ReplayedStep(tuple(token_ids), path, tested, proposers)


def accepted_path(token_ids: Sequence[int], parents: Sequence[int], following: Sequence[int]) -> tuple[int, ...]:
    """The nodes, from depth 1 on, that spell the beginning of the following tokens."""
    children = {(parent, token): node for node, (parent, token) in enumerate(zip(parents, token_ids, strict=True))}
    path: list[int] = []
    for token in following:
        child = children.get((path[-1] if path else 0, token))
        if child is None:
            break
        path.append(child)
    return tuple(path)
