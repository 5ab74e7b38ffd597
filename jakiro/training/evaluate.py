"""τ on prompts: written answers replayed with a drafter, for several temperatures and tree sizes.

Everything here is computed from replayed steps and written answers; `answers.py` writes, `replay.py` drafts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting.base import Drafter, Proposal
from jakiro.drafting.growing import TreeGrower
from jakiro.heads.jakiro import JakiroHead
from jakiro.methods.jakiro import HeadDrafter
from jakiro.trace import acceptance_by_depth, pooled_tau
from jakiro.training.answers import Answer
from jakiro.training.features import Batch
from jakiro.training.replay import ReplayedStep, replay
from jakiro.training.validation import HeldOut, expert_facts

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
        prompts: (steps, accepted draft tokens) of each prompt.
        passes: of the head, one after the other, in the mean step; None for drafters without a head that grows trees.
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
    prompts: tuple[tuple[int, int], ...]
    passes: float | None


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
        passes = PassCounts()
        counted, steps = passes.of(drafter), []
        for answer in answers:
            passes.begin()
            steps.append(list(replay(counted, answer.ids, answer.features, answer.start, answer.end, sampling, tree)))
        categories = [answer.question.category for answer in answers]
        for category in (ALL, *dict.fromkeys(categories)):
            chosen = [index for index, name in enumerate(categories) if category in (ALL, name)]
            members = [steps[index] for index in chosen]
            yield _score(method, sampling.temperature, tree.nodes, category, members, passes.mean(chosen))


class PassCounts:
    """Counts the passes of a head that follow one another in each step, text by text."""

    def __init__(self) -> None:
        self._counts: list[list[int]] = []

    def begin(self) -> None:
        """The steps of the next text follow."""
        self._counts.append([])

    def of(self, drafter: Drafter) -> Drafter:
        """The same drafter, counted where a head grows its trees."""
        if not isinstance(drafter, HeadDrafter):
            return drafter

        def growing(*given) -> TreeGrower:
            grower = drafter.grower(*given)
            grow = grower.grow

            def counted() -> Proposal:
                proposal = grow()
                self._counts[-1].append(len(grower.outputs))
                return proposal

            grower.grow = counted
            return grower

        return replace(drafter, grower=growing)

    def mean(self, texts: Sequence[int]) -> float | None:
        """Passes a step over these texts; None where nothing was counted."""
        counts = [count for text in texts for count in self._counts[text]]
        return sum(counts) / len(counts) if counts else None


def _score(
    method: str, temperature: float, nodes: int, category: str, members: Sequence[list[ReplayedStep]],
    passes: float | None,
) -> Score:  # fmt: skip
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
        prompts=tuple((len(own), sum(len(step.accepted_path) for step in own)) for own in members),
        passes=passes,
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
