"""τ on prompts: written answers replayed with a drafter, for several temperatures and tree sizes.

Everything here is computed from replayed steps and written answers; `answers.py` writes, `replay.py` drafts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting.base import Drafter
from jakiro.heads.jakiro import JakiroHead
from jakiro.trace import acceptance_by_depth, pooled_tau
from jakiro.training.data.answers import Answer
from jakiro.training.data.features import Batch
from jakiro.training.measure.replay import ReplayedStep, replay
from jakiro.training.measure.validation import HeldOut, expert_facts

ALL = "all"


@dataclass(frozen=True, slots=True)
class Score:
    """What one tree size reaches over the prompts of one category.

    Attributes:
        method: its name.
        category: of the prompts, or "all".
        tau: accepted draft tokens per step + 1, pooled over steps, before any cut; None without steps.
        num_steps, num_prompts: what it was pooled from.
        acceptance_by_depth: (kept, tested) steps for depth 1, 2, …
        accepted_share: share of the accepted draft tokens by proposer.
    """

    method: str
    temperature: float
    nodes: int
    category: str
    tau: float | None
    num_steps: int
    num_prompts: int
    acceptance_by_depth: tuple[tuple[int, int], ...]
    accepted_share: dict[str, float]


def scores(
    method: str, drafter: Drafter, answers: Sequence[Answer], sampling: SamplingParams, trees: Sequence[TreeConfig]
) -> Iterator[Score]:
    """Every tree size over all prompts, then by category.

    Args:
        method: its name. drafter: of a method that needs no logits.
        answers: written under `sampling`.
        trees: fixed trees.
    """
    for tree in trees:
        steps = [
            list(replay(drafter, answer.ids, answer.features, answer.start, answer.end, sampling, tree))
            for answer in answers
        ]
        categories = [answer.question.category for answer in answers]
        for category in (ALL, *dict.fromkeys(categories)):
            members = [own for own, name in zip(steps, categories, strict=True) if category in (ALL, name)]
            yield _score(method, sampling.temperature, tree.nodes, category, members)


def _score(method: str, temperature: float, nodes: int, category: str, members: Sequence[list[ReplayedStep]]) -> Score:
    steps = [step for own in members for step in own]
    accepted = [name for step in steps for name in step.proposers]
    return Score(
        method=method,
        temperature=temperature,
        nodes=nodes,
        category=category,
        tau=pooled_tau(steps),
        num_steps=len(steps),
        num_prompts=len(members),
        acceptance_by_depth=tuple(acceptance_by_depth(steps)),
        accepted_share={name: accepted.count(name) / len(accepted) for name in sorted(set(accepted))},
    )


@torch.no_grad()
def experts_on(head: JakiroHead, answers: Sequence[Answer], output_weight: Tensor) -> dict[str, float]:
    """`validation.expert_facts` over written answers, against the target's greedy choices."""
    batches, choices = [], []
    for answer in answers:
        ids, inputs = answer.ids[None, : answer.end + 1], answer.features[None, : answer.end + 1].float()
        lengths, starts = torch.tensor([ids.shape[1]]), torch.tensor([answer.start])
        batches.append(Batch(ids, inputs, lengths, starts, head.config.hidden_size).to(output_weight.device))
        choices.append((batches[-1].features @ output_weight.float().T).argmax(-1))
    facts = expert_facts(head, HeldOut(batches, choices, output_weight))
    return {name.removeprefix("experts/"): value for name, value in facts.items()}
