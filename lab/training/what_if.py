"""What if a tree began with several of the target's tokens, the branch that lasts longest being kept?

Improved multi-candidate decoding (arXiv 2409.10644) does so. Only one of those tokens is the target's choice, so a
longer branch below another one changes the text. Here both kinds are drafted and checked at every step of a written
answer, and the steps are counted at which the text would have changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.sampling import choose, tempered
from jakiro.core.tree import DraftTree
from jakiro.drafters.base import Committed, TreeLimits
from jakiro.drafters.head import HeadDrafter
from jakiro.models.target import TargetModel
from jakiro.training.replay import Answer, accepted_path, children_of, committed_tokens, start_session


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Counts over one answer.

    Attributes:
        num_steps: of decoding with the choice's own branch. num_changed: those that another branch would have won.
        accepted, longest: tokens accepted in the choice's branch, and in the longest one, over all steps.
    """

    num_steps: int
    num_changed: int
    accepted: int
    longest: int


@torch.inference_mode()
def what_if(
    target: TargetModel,
    drafter: HeadDrafter,
    answer: Answer,
    sampling: SamplingParams,
    beginnings: int,
    tree: TreeConfig,
) -> WhatIf:
    """Counts for one answer.

    Args:
        drafter: with a head that was made for the target.
        sampling: the answer was written under it, at temperature 0 or without top-k and top-p.
        beginnings: tokens of the target that trees begin with.
        tree: drafted below each of them.
    """
    ids, start = answer.ids, answer.start
    noise = KeyedNoise(sampling.seed)
    vocabulary = torch.arange(target.vocab_size)
    session = start_session(drafter, ids, answer.features, start, sampling)
    session.propose(TreeLimits(tree))
    cache = target.new_cache(len(ids) + 1 + beginnings * tree.nodes)
    target.prefill(ids[: start - 1], cache)
    position, num_steps, num_changed, accepted, longest = start, 0, 0, 0, 0
    while position < answer.end:
        logits = target.logits(answer.features[position - 1 : position, : target.hidden_size])
        ranks = tempered(logits, sampling)[0]
        if not sampling.greedy:
            ranks = ranks + noise.at(torch.tensor(position), vocabulary)
        others = [each for each in ranks.topk(beginnings).indices.tolist() if each != int(ids[position])]
        branches = []
        for token_id in [*others[: beginnings - 1], int(ids[position])]:
            session.rewind(position)
            root = torch.tensor([token_id])
            session.observe(Committed([token_id], root, answer.features[position - 1 : position]))
            branches.append(session.propose(TreeLimits(tree)).tree)
        joint, firsts = _joined(ids[position - 1 : position], branches)
        base = cache.length
        scores = target.score(joint, cache)
        choices = choose(scores.logits, sampling, noise, joint.depths + (base + 1)).token_ids.tolist()
        lengths = [_accepted(joint, first, choices) for first in firsts]
        own = lengths[-1]
        num_steps, num_changed = num_steps + 1, num_changed + (max(lengths) > own)
        accepted, longest = accepted + own, longest + max(lengths)
        path = accepted_path(joint.token_ids.tolist(), joint.parents.tolist(), ids[position : position + own].tolist())
        cache.keep(base, [0, *path])
        # Back to the choice itself, then what was kept after it
        session.rewind(position)
        session.observe(committed_tokens(ids, answer.features, position - 1, position + own))
        session.catch_up()
        position += own + 1
    return WhatIf(num_steps, num_changed, accepted, longest)


def _joined(root: Tensor, branches: Sequence[DraftTree]) -> tuple[DraftTree, list[int]]:
    """The branches below one root, and where each begins."""
    token_ids, parents, depths, firsts = [root], [torch.tensor([-1])], [torch.tensor([0])], []
    size = 1
    for branch in branches:
        firsts.append(size)
        token_ids.append(branch.token_ids)
        parents.append(torch.where(branch.parents < 0, 0, branch.parents + size))
        depths.append(branch.depths + 1)
        size += branch.num_nodes
    deepest = 1 + max(branch.max_depth for branch in branches)
    return DraftTree.unscored(torch.cat(token_ids), torch.cat(parents), torch.cat(depths), deepest), firsts


def _accepted(tree: DraftTree, first: int, choices: Sequence[int]) -> int:
    """Draft tokens accepted below node `first`, as if it were right."""
    children = children_of(tree.token_ids.tolist(), tree.parents.tolist())
    node, count = first, 0
    while (node := children.get((node, choices[node]), -1)) >= 0:
        count += 1
    return count
