"""What a head is worth on held-out text: agreement with the target's choices, what its experts do, simulated τ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jakiro.config import TreeConfig
from jakiro.heads.jakiro import JakiroHead, mixture
from jakiro.heads.layers import HeadOutput
from jakiro.training.data.corpus import Row
from jakiro.training.data.features import Batch, FeatureCache, length_buckets
from jakiro.training.measure.simulate import simulated_tau
from jakiro.training.recipe.losses import LossWeights, Objective, learnable_positions

NUM_STEPS = 5
NODE_BUDGETS = (8, 16, 24)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out batches with the target's choices.

    Attributes:
        batches: padded sequences.
        choices: per batch (batch, length) int64, the target's greedy choice after each position.
    """

    batches: list[Batch]
    choices: list[Tensor]


@torch.no_grad()
def held_out(cache: FeatureCache, indices: Sequence[int], output_weight: Tensor, batch_tokens: int = 2048) -> HeldOut:
    """Reads sequences onto the output rows' device; computes the target's greedy choices over its whole vocabulary."""
    device = output_weight.device
    batches = [cache.batch(group).to(device) for group in length_buckets(cache.lengths, indices, batch_tokens)]
    choices = []
    for batch in batches:
        rows = [(row.to(output_weight) @ output_weight.T).argmax(-1) for row in batch.features]
        choices.append(torch.stack(rows))
    return HeldOut(batches, choices)


@torch.no_grad()
def agreement(head: JakiroHead, data: HeldOut, num_steps: int = NUM_STEPS) -> dict[str, float]:
    """Shares of positions where the head's first guess, or one of its first three, is the target's choice.

    `main_k` reads the head's own features k − 1 times; `contrastive_k` is predicted one position further from the same
    pass.
    """
    totals: dict[str, float] = {}
    count = 0
    objective = Objective(head, LossWeights())
    for batch, choice in zip(data.batches, data.choices, strict=True):
        sequence, position = learnable_positions(batch, num_steps).nonzero(as_tuple=True)
        count += len(position)
        wanted = choice[sequence, position].unsqueeze(-1)
        for name, log_scores in _predictions(objective, batch, sequence, position, num_steps):
            hits = head.draft_token_ids[log_scores.topk(3).indices] == wanted
            totals[f"{name}/top1"] = totals.get(f"{name}/top1", 0) + hits[:, 0].sum().item()
            totals[f"{name}/top3"] = totals.get(f"{name}/top3", 0) + hits.sum().item()
    return {name: total / count for name, total in totals.items()}


def _predictions(
    objective: Objective, batch: Batch, sequence: Tensor, position: Tensor, num_steps: int
) -> Iterator[tuple[str, Tensor]]:
    """Each branch's scores of the draft vocabulary at the given positions, step by step."""
    for step, output in enumerate(objective.unroll(batch, num_steps, None, None), start=1):
        yield f"main_{step}", main_scores(objective.head, output, sequence, position - 1)
        if output.contrastive is not None:
            yield f"contrastive_{step}", objective.head.logits(output.contrastive[sequence, position - 2])


def main_scores(head: JakiroHead, output: HeadOutput, sequence: Tensor, row: Tensor) -> Tensor:
    """(rows, draft vocabulary): logits of summed fusion, log q of the experts' mixture of decoupled fusion."""
    if head.config.fusion == "summed":
        return head.logits(output.features[sequence, row])
    log_probs = head.logits(output.features[:, sequence, row]).log_softmax(-1)
    return mixture(log_probs + output.router_weights[sequence, row].log().T[..., None])


@torch.no_grad()
def expert_facts(head: JakiroHead, data: HeldOut) -> dict[str, float]:
    """How the experts share the work, on the target's true features.

    `differ`: share of positions where the experts, each alone on the residual stream, have different first guesses;
    `best_expert_top1` and `union_top1`: how often the better expert's guess, or either's, is the target's choice, and
    `gain`, their difference;
    `entropy`: mean entropy of the routing weights in bits; `mean_weight_0`: the first expert's mean weight.
    """
    totals = {"differ": 0.0, "union": 0.0, "entropy": 0.0, "mean_weight_0": 0.0}
    hits, count = torch.zeros(head.config.num_experts), 0
    objective = Objective(head, LossWeights())
    for batch, choice in zip(data.batches, data.choices, strict=True):
        sequence, position = learnable_positions(batch, 1).nonzero(as_tuple=True)
        output = next(objective.unroll(batch, 1, None, None))
        alone = output.residual[sequence, position - 1] + output.expert_outputs[:, sequence, position - 1]
        guesses = head.draft_token_ids[head.logits(alone).argmax(-1)]
        right = guesses == choice[sequence, position]
        weights = output.router_weights[sequence, position - 1]
        hits += right.sum(-1).cpu()
        count += len(position)
        totals["differ"] += (guesses[0] != guesses[-1]).sum().item()
        totals["union"] += right.any(0).sum().item()
        totals["entropy"] += -torch.special.xlogy(weights, weights).sum().item() / torch.log(torch.tensor(2.0)).item()
        totals["mean_weight_0"] += weights[:, 0].sum().item()
    return {
        "experts/differ": totals["differ"] / count,
        "experts/best_expert_top1": hits.max().item() / count,
        "experts/union_top1": totals["union"] / count,
        "experts/gain": (totals["union"] - hits.max().item()) / count,
        "experts/entropy": totals["entropy"] / count,
        "experts/mean_weight_0": totals["mean_weight_0"] / count,
    }


def report(
    head: JakiroHead,
    cache: FeatureCache,
    rows: Sequence[Row],
    indices: Sequence[int],
    data: HeldOut,
    output_weight: Tensor,
    max_texts: int = 12,
    budgets: Sequence[int] = NODE_BUDGETS,
) -> dict[str, float]:
    """All of the above, and simulated τ by node budget at temperature 0 and 1 on up to `max_texts` texts each.

    Args:
        rows: the held-out corpus rows; indices: where each stands in the cache.
    """
    numbers = agreement(head, data) | expert_facts(head, data)
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        chosen = [(index, row) for index, row in zip(indices, rows, strict=True) if row.temp == temperature]
        batches = [(cache.batch([index]).to(output_weight.device), row) for index, row in chosen[:max_texts]]
        texts = [(batch.ids[0], batch.inputs[0], row.a0) for batch, row in batches]
        for nodes in budgets if texts else ():
            tree = TreeConfig(nodes=nodes)
            tau = simulated_tau(head, texts, output_weight, temperature == 0, tree)
            numbers[f"simulated_tau/{name}/{nodes}"] = tau
    return numbers
