"""What if Gumiho's parallel candidates were shared by all shorter paths, as its *full tree attention* does?

There the leaf of a short path may attend to the nodes of the longest path at later positions (arXiv 2503.10135). Its
row then depends on tokens that need not be in the text, and what follows the leaf is judged by rows that saw other
tokens before them. Here both ways judge the same tree at every step of a written answer, and the steps are counted at
which the text would have changed. Rows that such a step leaves in the cache are wrong too; that is not counted.
"""

from dataclasses import dataclass
from unittest import mock

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.sampling import choose
from jakiro.core.tree import DraftTree, ancestor_mask
from jakiro.drafters.base import Drafter, DraftRequest
from jakiro.models import passes
from jakiro.models.target import TargetModel
from jakiro.training.replay import Answer, accepted_path, begun, children_of, written


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Counts over one answer.

    Attributes:
        num_steps: of decoding with real nodes. num_changed: those at which sharing would have written other tokens.
        num_leaves: leaves that would have been lengthened. leaves_changed: those whose own next token would differ.
        accepted, accepted_shared: draft tokens accepted, over all steps; the shared ones need not be the target's.
    """

    num_steps: int
    num_changed: int
    num_leaves: int
    leaves_changed: int
    accepted: int
    accepted_shared: int


@torch.inference_mode()
def shared_nodes(
    target: TargetModel, drafter: Drafter, answer: Answer, sampling: SamplingParams, tree: TreeConfig, serial: int
) -> SharedCounts:
    """Counts for one answer.

    Args:
        drafter: with a head that was made for the target.
        sampling: the answer was written under it.
        serial: levels that the head drafts one after the other; nodes below them are shared.
    """
    ids, token_ids, start = answer.ids, answer.ids.tolist(), answer.start
    noise = KeyedNoise(sampling.seed)
    session = begun(drafter, ids, answer.features, start, sampling)
    cache = target.new_cache(len(ids) + tree.nodes)
    target.prefill(ids[:start], cache)
    position, totals = start, [0] * 6
    while position < answer.end:
        drafted = session.propose(DraftRequest(tree)).tree
        base = cache.length
        tails = shared_tails(drafted, serial)
        mask = ancestor_mask(drafted.parents, drafted.max_depth)
        choices = []
        for visible in (_lengthened(mask, tails), mask):
            cache.keep(base, [])
            # A pass over a tree whose nodes see others than their ancestors is nobody's else
            with mock.patch.object(passes, "ancestor_mask", lambda *_, visible=visible: visible):
                logits = target.score(drafted, cache).logits
            choices.append(choose(logits, sampling, noise, drafted.depths + (base + 1)).token_ids.tolist())
        shared, real = choices
        shared_ids = written_by(drafted, tails, shared)
        path = accepted_path(drafted.token_ids.tolist(), drafted.parents.tolist(), token_ids[position + 1 :])
        counts = (
            1,
            shared_ids != token_ids[position + 1 : position + 1 + len(shared_ids)],
            len(tails),
            sum(shared[leaf] != real[leaf] for leaf in tails),
            len(path),
            len(shared_ids) - 1,
        )
        totals = [total + int(count) for total, count in zip(totals, counts, strict=True)]
        cache.keep(base, [0, *path])
        before, position = position, position + len(path) + 1
        session.observe(written(ids, answer.features, before, position))
    return SharedCounts(*totals)


def shared_tails(tree: DraftTree, serial: int) -> dict[int, list[int]]:
    """For each leaf from level `serial` on that ends before the longest path: that path's nodes at later levels."""
    parents, depths = tree.parents.tolist(), tree.depths.tolist()
    longest = [max(range(len(depths)), key=lambda node: (depths[node], float(tree.scores[node])))]
    while parents[longest[0]] >= 0:
        longest.insert(0, parents[longest[0]])
    leaves = [node for node in set(range(1, len(parents))).difference(parents) if node not in longest]
    return {leaf: longest[depths[leaf] + 1 :] for leaf in leaves if serial <= depths[leaf] < depths[longest[-1]]}


def written_by(tree: DraftTree, tails: dict[int, list[int]], choices: list[int]) -> list[int]:
    """What a step writes where shared nodes follow leaves: its accepted tokens, then the last one's choice."""
    token_ids = tree.token_ids.tolist()
    children = children_of(token_ids, tree.parents.tolist())
    node, tail, written = 0, [], []
    while True:
        written.append(choices[node])
        child = children.get((node, choices[node]))
        tail = tails.get(node, tail)
        if child is None and tail and token_ids[tail[0]] == choices[node]:
            child, tail = tail[0], tail[1:]
        if child is None:
            return written
        node = child


def _lengthened(mask: Tensor, tails: dict[int, list[int]]) -> Tensor:
    mask = mask.clone()
    for leaf, tail in tails.items():
        mask[leaf, tail] = True
    return mask
