"""Evaluation of a head on held-out text: agreement with the target's choices, and τ along the text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.registry import METHODS, Methods
from jakiro.heads.base import DraftHead
from jakiro.heads.layer_head import mixture
from jakiro.trace import pooled_tau
from jakiro.training.corpus import Row
from jakiro.training.features import Batch, FeatureCache, length_buckets
from jakiro.training.losses import Objective, learnable_positions
from jakiro.training.replay import Answer, replay

NUM_STEPS = 5
NODE_BUDGETS = (8, 16, 24)
BATCH_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out batches with the target's choices.

    Attributes:
        batches: padded sequences.
        choices: per batch (batch, length) int64, the target's greedy choice after each position.
        output_weight: (vocab_size, hidden), the target's output rows.
    """

    batches: list[Batch]
    choices: list[Tensor]
    output_weight: Tensor


def held_out(cache: FeatureCache, indices: Sequence[int], output_weight: Tensor) -> HeldOut:
    """Read texts of a cache and compute the target's greedy choices."""
    groups = length_buckets(cache.lengths, indices, BATCH_TOKENS)
    return with_choices([cache.batch(group) for group in groups], output_weight)


@torch.no_grad()
def with_choices(batches: Sequence[Batch], output_weight: Tensor) -> HeldOut:
    """Move texts to the device of the output rows and compute the target's greedy choices."""
    batches, choices = [batch.to(output_weight.device) for batch in batches], []
    for batch in batches:
        rows = [(row.to(output_weight) @ output_weight.T).argmax(-1) for row in batch.features]
        choices.append(torch.stack(rows))
    return HeldOut(batches, choices, output_weight)


@torch.no_grad()
def agreement(objective: Objective, data: HeldOut, num_steps: int = NUM_STEPS) -> dict[str, float]:
    """Return the shares of positions where the target's choice is among the head's first one or three candidates.

    `main_k` reads the head's own features k − 1 times; `contrastive_k` is predicted by the same pass for the next
    position.
    """
    totals: dict[str, float] = {}
    head, count = objective.head, 0
    for batch, choice in zip(data.batches, data.choices, strict=True):
        sequence, position = learnable_positions(batch, num_steps).nonzero(as_tuple=True)
        count += len(position)
        expected = choice[sequence, position].unsqueeze(-1)
        for branch, step, *rows in branch_features(objective, batch, sequence, position, num_steps):
            hits = head.draft_token_ids[log_q(head, *rows).topk(3).indices] == expected
            for name, columns in (("top1", hits[:, :1]), ("top3", hits)):
                key = f"{branch}_{step}/{name}"
                totals[key] = totals.get(key, 0) + columns.sum().item()
    return {name: total / count for name, total in totals.items()}


def branch_features(
    objective: Objective, batch: Batch, sequence: Tensor, position: Tensor, num_steps: int
) -> Iterator[tuple[str, int, Tensor, Tensor | None]]:
    """Yield the features from which each branch predicts the target's choices at these positions.

    Yields:
        "main" or "contrastive"; the unrolled step or the level; (positions, hidden) features, with decoupled fusion
        (experts, positions, hidden); and with decoupled fusion the log of the (positions, experts) router weights.
    """
    for step, output in enumerate(objective.unroll(batch, num_steps, None), start=1):
        if objective.head.mixes_experts:
            router_log = output.router_weights[sequence, position - 1].log()
            yield "main", step, output.features[:, sequence, position - 1], router_log
        else:
            yield "main", step, output.features[sequence, position - 1], None
        if output.contrastive is not None:
            yield "contrastive", step, output.contrastive[sequence, position - 2], None


def log_q(head: DraftHead, features: Tensor, router_log: Tensor | None, temperature: float = 1.0) -> Tensor:
    """Return the draft's (positions, draft vocabulary) log probabilities at a temperature; see `branch_features`."""
    log_probs = (head.logits(features) / temperature).log_softmax(-1)
    return log_probs if router_log is None else mixture(log_probs + router_log.T[..., None])


def report(
    objective: Objective, cache: FeatureCache, rows: Sequence[Row], data: HeldOut,
    methods: Methods = METHODS, budgets: Sequence[int] = NODE_BUDGETS,
) -> dict[str, float]:  # fmt: skip
    """Return the agreement, and τ by number of nodes along up to 12 texts that the target wrote greedily.

    Args:
        objective: of the head.
        cache: features of the texts.
        rows: the held-out texts, the first ones of the cache.
        data: see `held_out`.
        methods: drafting methods, including that of the head.
        budgets: numbers of nodes.
    """
    numbers = agreement(objective, data)
    greedy = [(index, row.a0) for index, row in enumerate(rows) if row.temp == 0][:12]
    texts = [(*cache.texts(index, 1, data.output_weight.device)[0], start) for index, start in greedy]
    answers = [Answer(ids, features, start, len(ids) - 1) for ids, features, start in texts]
    drafter, sampling = methods.drafter_of(objective.head), SamplingParams()
    for nodes in budgets:
        tree = TreeConfig(nodes=nodes)
        steps = [step for answer in answers for step in replay(drafter, answer, sampling, tree)]
        if steps:
            numbers[f"tau/greedy/{nodes}"] = pooled_tau(steps)
    return numbers
